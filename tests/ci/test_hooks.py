"""The hooks, run by pre-commit itself in an environment that it makes from this working tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers import REPOSITORY, cli, committed, git, one_line, read_tree, wheel_for, write_tree

from migrator import migrate_paths

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TPU = GPU.replace("x.cuda()", 'x.to("jax")')
SCRIPT = (
    "import torch\n\n\ndef main():\n    print(torch.ones(2).cuda())\n\n\n"
    'if __name__ == "__main__":\n    main()\n'
)
TORCHAX = '[tool.tpu-migrate]\ntarget = "torchax"\n'
HOOK = ("--hook", "--target", "torchax")


# ---- by pre-commit -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """This working tree, committed in a repository of its own, and the commit."""
    names = git(REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    tree = {n: REPOSITORY / n for n in names.split("\0") if n and (REPOSITORY / n).is_file()}
    root = tmp_path_factory.mktemp("published")
    for name, file in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            (root / name).symlink_to(file.readlink())
        else:
            (root / name).write_bytes(file.read_bytes())
    return committed(root, {}), git(root, "rev-parse", "HEAD").strip()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps the environments that it makes: one for all tests."""
    return tmp_path_factory.mktemp("pre-commit")


class Project:
    """A repository that uses the hooks."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PRE_COMMIT_HOME": str(home), "PRE_COMMIT_COLOR": "never",
                    "PATH": path}  # fmt: skip

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """pre-commit, with both of its outputs in one."""
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", *arguments], cwd=self.root, env=self.env,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip

    def commit(self) -> subprocess.CompletedProcess[str]:
        command = [
            "git",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "commit",
            "-m",
            "m",
        ]
        return subprocess.run(
            command, cwd=self.root, env=self.env, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, published: tuple[Path, str], home: Path) -> Project:
    """An empty repository whose commits run the hook that fixes; the other one is run by hand."""
    source, revision = published
    configuration = (
        f"repos:\n- repo: {source}\n  rev: {revision}\n  hooks:\n  - id: tpu-migrate\n"
        "  - id: tpu-migrate-check\n    stages: [manual]\n"
    )
    root = committed(tmp_path, {".pre-commit-config.yaml": configuration})
    made = Project(root, home)
    assert made.run("install", "--install-hooks").returncode == 0
    return made


def staged(root: Path, files: Mapping[str, str]) -> None:
    write_tree(root, files)
    git(root, "add", *files)


def test_a_commit_is_fixed_and_then_passes(project: Project) -> None:
    root = project.root
    staged(root, {"pyproject.toml": TORCHAX, "src/train.py": SCRIPT, "src/clean.py": "x = 1\n"})
    first = project.commit()
    assert first.returncode == 1, first.stdout
    assert "src/train.py  MOV001, SET001" in first.stdout
    assert "git add vendor" in first.stdout
    assert "files were modified by this hook" in first.stdout
    expected = migrate_paths([root / "src"])
    assert not expected.changed and not expected.companions  # as the checkout would have it
    git(root, "add", "-u")
    second = project.commit()  # a clone of it would miss the runtime
    assert second.returncode == 1 and "git add vendor" in second.stdout
    git(root, "add", "vendor")
    third = project.commit()
    assert third.returncode == 0, third.stdout
    assert git(root, "status", "--short") == ""
    check = ("run", "--all-files", "--hook-stage", "manual", "tpu-migrate-check", "--verbose")
    after = project.run(*check)
    assert after.returncode == 0 and "2 files scanned, 0 would change" in after.stdout


def test_what_is_not_staged_comes_back(project: Project) -> None:
    root = project.root
    staged(root, {"pyproject.toml": TORCHAX, "a.py": GPU, "b.py": "x = 1\n"})
    write_tree(root, {"b.py": "x = 1\n# not yet\n"})
    run = project.commit()
    assert run.returncode == 1 and "Stashing unstaged files" in run.stdout
    assert (root / "a.py").read_text() == TPU
    assert (root / "b.py").read_text() == "x = 1\n# not yet\n"


def test_the_check_shows_the_diff_and_writes_nothing(project: Project) -> None:
    root = project.root
    staged(root, {"pyproject.toml": TORCHAX, "train.py": SCRIPT})
    before = read_tree(root, runtime=True)
    run = project.run("run", "--hook-stage", "manual", "tpu-migrate-check")
    assert run.returncode == 1
    assert '+    print(torch.ones(2).to("jax"))' in run.stdout
    assert f"{wheel_for('torchax')} is the runtime of the migrated code: pip install" in run.stdout
    assert read_tree(root, runtime=True) == before


def test_without_a_target_it_is_one_line(project: Project) -> None:
    staged(project.root, {"a.py": GPU})
    run = project.commit()
    assert run.returncode == 1
    said = [line for line in run.stdout.splitlines() if line.startswith("tpu-migrate: ")]
    assert len(said) == 1 and "no target given: --target" in said[0]
    assert "[tool.tpu-migrate]" in said[0] and "Traceback" not in run.stdout


def test_the_environment_has_what_a_checkout_has_and_nothing_heavy(
    project: Project, home: Path
) -> None:
    (python,) = home.glob("repo*/py_env-*/bin/python")
    show = "import migrator, migrator.rules as r; print(migrator.__path__[0]); print(r.__path__[0])"
    run = subprocess.run([python, "-I", "-c", show], capture_output=True, text=True, check=True)
    package, rules = map(Path, run.stdout.split())
    for ours, installed in ((REPOSITORY / "migrator", package), (REPOSITORY / "rules", rules)):
        files = git(ours, "ls-files", "-z", "--cached", "--others", "--exclude-standard", ".")
        for name in filter(None, files.split("\0")):
            if (ours / name).is_file():
                assert (installed / name).read_bytes() == (ours / name).read_bytes(), name
    listed = {path.name.partition("-")[0] for path in package.parent.glob("*.dist-info")}
    assert listed.isdisjoint({"torch", "jax", "jaxlib", "numpy"}), listed


# ---- what a hook's call means --------------------------------------------------------------------


def test_no_files_are_no_error(tmp_path: Path) -> None:
    run = cli("--hook", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def test_files_of_one_commit_are_read_in_their_project(tmp_path: Path) -> None:
    helper = "import torch\n\n\ndef pick():\n    return torch.device('cuda')\n"
    files = {
        "pkg/__init__.py": "",
        "pkg/helper.py": helper,
        "pkg/use.py": "from pkg.helper import pick\n\nif pick().type == 'cuda':\n    print(1)\n",
        "main.py": "from pkg import use\n\nif __name__ == '__main__':\n    print(use)\n",
    }
    whole = committed(tmp_path / "whole", files)
    assert cli(".", "--target", "torchax", cwd=whole).returncode == 0
    of_one_commit = committed(tmp_path / "one", files)
    cli(*HOOK, *files, cwd=of_one_commit)
    assert read_tree(of_one_commit, runtime=True) == read_tree(whole, runtime=True)
    assert (whole / wheel_for("torchax")).is_file()
    in_part = committed(tmp_path / "part", files)
    for name in ("pkg/helper.py", "pkg/use.py", "main.py"):
        run = cli(*HOOK, name, cwd=in_part)
        assert run.returncode == 1 and b"since its program would change in" in run.stdout
    assert read_tree(in_part, runtime=True) == {name: text.encode() for name, text in files.items()}


def test_what_a_search_passes_over_is_passed_over(tmp_path: Path) -> None:
    table = '[tool.tpu-migrate]\ntarget = "torchax"\nexclude = ["third_party", "gen_*.py"]\n'
    files = {"third_party/a.py": GPU, "lib/gen_b.py": GPU, "lib/c.py": GPU, ".venv/d.py": GPU}
    root = committed(tmp_path, {"pyproject.toml": table, **files})
    assert cli("--hook", *files, cwd=root).returncode == 1
    assert [name for name in files if (root / name).read_text() == TPU] == ["lib/c.py"]
    by_hand = cli("third_party/a.py", "--check", cwd=root)  # a person may name one
    assert by_hand.returncode == 1


def test_a_hook_for_all_files_takes_what_is_code(tmp_path: Path) -> None:
    shebang = "#!/usr/bin/env python3\n" + GPU
    data = '{"device": "cuda"}\n'
    files = {"README.md": "cuda(\n", "NOTES": "cuda(\n", "labels.json": data, "tool": shebang}
    root = committed(tmp_path, files)
    run = cli(*HOOK, *files, cwd=root)
    assert run.returncode == 1 and b"1 file scanned, 1 changed" in run.stdout
    assert (root / "tool").read_text() == shebang.replace(GPU, TPU)


def test_the_bundled_runtime_is_not_processed(tmp_path: Path) -> None:
    root = committed(tmp_path, {"main.py": SCRIPT})
    cli(*HOOK, "--runtime", "copy", "main.py", cwd=root)
    git(root, "add", "-A")
    runtime = sorted(str(p.relative_to(root)) for p in (root / "tpu_runtime").rglob("*.py"))
    for arguments in (HOOK, ("--target", "torchax", "--check")):
        run = cli(*arguments, "main.py", *runtime, cwd=root)
        assert run.returncode == 0 and b"1 file scanned" in run.stdout


def test_requirements_follow_the_code_of_the_project(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch==2.1\n", "a.py": "x = 1\n", "setup.py":
             "from setuptools import setup\n\nsetup(install_requires=['torch'])\n"}  # fmt: skip
    root = committed(tmp_path, files)
    assert cli(*HOOK, "requirements.txt", "setup.py", cwd=root).returncode == 0
    assert read_tree(root) == {name: text.encode() for name, text in files.items()}
    write_tree(root, {"a.py": GPU})
    assert cli(*HOOK, "requirements.txt", cwd=root).returncode == 1
    assert b"torch==2.9.0" in (root / "requirements.txt").read_bytes()


def test_the_configuration_is_that_of_all_files(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a/a.py": GPU, "b/b.py": GPU, "b/pyproject.toml": TORCHAX})
    assert cli("--hook", "--diff", "b/b.py", cwd=root).returncode == 1
    run = cli("--hook", "--diff", "b/b.py", "a/a.py", cwd=root)  # in any order
    assert run.returncode == 2
    one_line(run.stderr, "no target")
    write_tree(root, {"pyproject.toml": TORCHAX})
    assert cli("--hook", "--diff", "b/b.py", "a/a.py", cwd=root).returncode == 1


def test_only_what_the_commit_brings(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": GPU})
    check = (*HOOK, "--diff", "--diff-base=HEAD")
    assert cli(*check, "a.py", "b.py", cwd=root).returncode == 0
    write_tree(root, {"a.py": GPU + "\n\ndef g(x):\n    return x.cuda()\n"})
    git(root, "add", "a.py")
    run = cli(*check, "a.py", "b.py", cwd=root)
    assert run.returncode == 1 and b"b.py" not in run.stdout + run.stderr


def test_a_file_is_not_taken_for_a_revision(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "import torch\nx = torch.ones(2).cuda()\n"})
    git(root, "branch", "-M", "main")
    run = cli(*HOOK, "--check", "--diff-base", "a.py", cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "a.py", "--diff-base=auto")
    assert cli(*HOOK, "--check", "--diff-base", "HEAD", cwd=root).returncode == 0
    assert cli(*HOOK, "--check", "--diff-base=auto", "a.py", cwd=root).returncode == 0
    (root / "b.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    assert cli(*HOOK, "--check", "--diff-base=auto", "b.py", cwd=root).returncode == 1


def test_nothing_is_overwritten_that_git_does_not_hold(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "x = 1\n"})
    write_tree(root, {"a.py": GPU})
    run = cli(*HOOK, "a.py", cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "a.py", "not staged")


def test_a_clean_commit_waits_for_no_parser(tmp_path: Path) -> None:
    """LibCST takes longer to import than all the rest: see benchmarks/hook_time.py."""
    root = committed(tmp_path, {"a.py": "x = 1\n", "migrated.py": TPU})
    code = (
        "import sys\nsys.argv = ['tpu-migrate', *sys.argv[1:]]\nfrom migrator.cli import main\n"
        "try:\n    main()\nfinally:\n    print(sorted(sys.modules))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *HOOK, "a.py", "migrated.py"], cwd=root,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "2 files scanned, 0 changed" in run.stdout
    for module in ("libcst", "pygments.lexers", "packaging.requirements", "multiprocessing"):
        assert f"'{module}'" not in run.stdout
