"""--diff-base: what a change has brought, in real repositories."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers import cli, committed, git, one_line, read_tree, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from migrator.errors import UsageError
from migrator.runs.run_report import Report

OLD = "import torch\n\n\ndef old(x):\n    return x.cuda()\n"
NEW = "\n\ndef new(x):\n    return x.cuda()\n"
STREAM = "\n\ndef stream():\n    return torch.cuda.Stream()\n"
CHECK = ("--target", "torchax", "--check", "--diff-base")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_DIFF_BASE_SHA"):
        monkeypatch.delenv(name, raising=False)


def since(root: Path, revision: str = "HEAD", path: str = ".") -> Report:
    return migrate_paths([root / path], diff_base=revision)


def found(report: Report, root: Path) -> list[str]:
    """`file:place outcome` of each construct that counts."""
    return [
        f"{path.resolve().relative_to(root.resolve()).as_posix()}:{d.range} {d.outcome}"
        for path, d in report.diagnostics(*Outcome)
    ]


def append(path: Path, text: str) -> None:
    with path.open("a", newline="") as file:
        file.write(text)


def commit(root: Path, message: str = "more") -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)


# ---- which lines count ---------------------------------------------------------------------------


def test_only_what_the_change_brought_counts(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": OLD, "b.py": OLD})
    assert since(root).check_code() == 0
    append(root / "a.py", "\n\ndef plain(x):\n    return x\n")
    report = since(root)
    assert report.check_code() == 0 and not report.changed
    append(root / "a.py", NEW + STREAM)
    report = since(root)
    assert found(report, root) == ["a.py:13:14 rewritten", "a.py:17:12 reported"]
    assert report.check_code() == 1
    assert [f.path.name for f in report.changed] == ["a.py"]


def test_a_construct_counts_where_any_of_its_lines_is_new(tmp_path: Path) -> None:
    call = "import torch\n\nx = torch.ones(\n    {},\n    device='cuda',\n)\n"
    root = committed(tmp_path, {"a.py": call.format(2) + "print(x)\n"})
    write_tree(root, {"a.py": call.format(3) + "print(x)\n"})
    assert since(root).check_code() == 0  # the device is on another line
    write_tree(root, {"a.py": call.format(2).replace("'cuda'", "'cuda:0'") + "print(x)\n"})
    assert found(since(root), root) == ["a.py:5:12 rewritten"]


def test_staged_committed_and_untracked_changes_count(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": OLD, "b.py": OLD, "c.py": OLD, ".gitignore": "gen.py\n"})
    base = git(root, "rev-parse", "HEAD").strip()
    append(root / "a.py", NEW)
    commit(root)
    append(root / "b.py", NEW)
    git(root, "add", "b.py")
    append(root / "c.py", NEW)
    write_tree(root, {"new/d.py": OLD, "gen.py": OLD})
    assert found(since(root, base), root) == [
        "a.py:9:14 rewritten", "b.py:9:14 rewritten", "c.py:9:14 rewritten",
        "new/d.py:5:14 rewritten",
    ]  # fmt: skip
    assert found(since(root, base, "c.py"), root) == ["c.py:9:14 rewritten"]


def test_what_the_base_has_got_meanwhile_is_no_change(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": OLD})
    git(root, "branch", "-M", "main")
    git(root, "checkout", "-qb", "feature")
    append(root / "a.py", NEW)
    commit(root)
    git(root, "checkout", "-q", "main")
    write_tree(root, {"a.py": OLD.replace("x.cuda()", "x.float()")})
    commit(root)
    git(root, "checkout", "-q", "feature")
    assert found(since(root, "main"), root) == ["a.py:9:14 rewritten"]


def test_renames_and_deleted_files(tmp_path: Path) -> None:
    body = OLD + "".join(f"\n\ndef f{n}():\n    return {n}\n" for n in range(20))
    root = committed(tmp_path, {"a.py": body, "gone.py": OLD})
    git(root, "mv", "a.py", "moved to.py")
    git(root, "rm", "-q", "gone.py")
    assert since(root).check_code() == 0
    append(root / "moved to.py", NEW)
    assert len(found(since(root), root)) == 1


@pytest.mark.parametrize("name", ["a b.py", "ä/größe.py", "a\nb.py", "a\tb.py", '"q".py', "[x].py"])
def test_any_name(tmp_path: Path, name: str) -> None:
    root = committed(tmp_path, {name: OLD, "x.py": OLD})
    append(root / name, NEW)
    assert found(since(root), root) == [f"{name}:9:14 rewritten"]


def test_line_ends(tmp_path: Path) -> None:
    windows = OLD.replace("\n", "\r\n")
    root = committed(tmp_path, {"a.py": windows, "b.py": OLD})
    append(root / "a.py", NEW.replace("\n", "\r\n"))
    assert found(since(root), root) == ["a.py:9:14 rewritten"]
    write_tree(root, {"a.py": windows, "b.py": windows})
    git(root, "config", "core.autocrlf", "true")  # git takes them for the same
    assert since(root).check_code() == 0


def test_attributes_and_configuration_of_git_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = committed(tmp_path, {"a.py": OLD, ".gitattributes": "*.py binary diff=odd\n"})
    for key, value in {
        "diff.odd.textconv": "false", "diff.external": "false", "diff.noprefix": "true",
        "color.ui": "always", "diff.context": "9", "diff.renames": "false",
    }.items():  # fmt: skip
        git(root, "config", key, value)
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u9")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    append(root / "a.py", NEW)
    assert found(since(root), root) == ["a.py:9:14 rewritten"]


def test_an_error_counts_in_a_file_that_is_touched(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "print 'cuda'\n", "b.py": "print 'cuda'\n"})
    assert since(root).check_code() == 0
    append(root / "a.py", "x = 1\n")
    assert since(root).check_code() == 2


def test_a_command_over_several_lines(tmp_path: Path) -> None:
    script = "set -e\nsrun \\\n  --gres=gpu:{} \\\n  python train.py\n"
    root = committed(tmp_path, {"run.sh": script.format(1), "train.py": OLD})
    assert since(root).check_code() == 0
    write_tree(root, {"run.sh": script.format(2)})
    assert found(since(root), root) == ["run.sh:2:1 reported"]


def test_requirements_count_where_the_project_has_gpu_code(tmp_path: Path) -> None:
    root = committed(tmp_path, {"requirements.txt": "numpy\n", "a.py": OLD})
    append(root / "requirements.txt", "torch==2.1\n")
    assert found(since(root), root) == ["requirements.txt:2:1 rewritten"]
    write_tree(root, {"a.py": "x = 1\n"})
    assert since(root).check_code() == 0


# ---- facts and companions ------------------------------------------------------------------------

SCRIPT = (
    "import torch\nfrom helper import pick\n\n\ndef main():\n    x = torch.ones(2).to(pick())\n"
    "    print(x)\n\n\nif __name__ == '__main__':\n    main()\n"
)
HELPER = "import torch\n\n\ndef pick():\n    return torch.device('cuda')\n"


def test_facts_come_from_files_that_did_not_change(tmp_path: Path) -> None:
    text = "import torch\nfrom helper import pick\n\ndevice = pick()\n"
    root = committed(tmp_path, {"helper.py": HELPER, "use.py": text})
    append(root / "use.py", "if device.type == 'cuda':\n    print(1)\n")
    whole = migrate_paths([root / "use.py"])
    assert found(since(root), root) == found(whole, root) != []


def test_a_runtime_that_is_missing_counts_with_its_script(tmp_path: Path) -> None:
    root = committed(tmp_path, {"helper.py": HELPER, "main.py": SCRIPT})
    append(root / "main.py", "# the end\n")
    report = since(root)
    assert report.check_code() == 0 and not report.companions
    migrate_paths([root], write=True, allow_dirty=True)
    commit(root)
    append(root / "main.py", "# really\n")
    assert since(root).check_code() == 0
    shutil.rmtree(root / "tpu_runtime")
    assert since(root).companions and since(root).check_code() == 1


def test_the_set_up_counts_where_it_would_be_put_in(tmp_path: Path) -> None:
    clean = "import os\n\nif __name__ == '__main__':\n    print(os.name)\n"
    root = committed(tmp_path, {"helper.py": HELPER, "main.py": clean})
    write_tree(root, {"main.py": clean.replace("import os\n", "import os\nimport helper\n")})
    report = since(root)
    assert [f.path.name for f in report.changed] == ["main.py"]
    commit(root)
    append(root / "main.py", "    print(helper.pick)\n")
    assert since(root).check_code() == 0


# ---- notebooks -----------------------------------------------------------------------------------


def book(cells: Sequence[str], indent: int = 1, count: int = 0) -> str:
    made = [
        {"cell_type": "code", "execution_count": count, "id": f"c{n}", "metadata": {},
         "outputs": [{"name": "stdout", "output_type": "stream", "text": [f"{count}\n"]}],
         "source": cell.splitlines(keepends=True)}
        for n, cell in enumerate(cells)
    ]  # fmt: skip
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5},
                      indent=indent)  # fmt: skip


FIRST = "import torch\nx = torch.ones(2).cuda()\n"


def test_cells_are_compared_not_their_json(tmp_path: Path) -> None:
    root = committed(tmp_path, {"n.ipynb": book([FIRST, "y = x.cuda()\nz = 1\n"])})
    again = book([FIRST, "y = x.cuda()\nz = 1\n"], indent=4, count=7)
    write_tree(root, {"n.ipynb": again})
    assert since(root).check_code() == 0  # run again, and written by another program
    cells = [FIRST, "w = x.cuda()\n", "y = x.cuda()\nz = 2\nv = x.cuda()"]
    write_tree(root, {"n.ipynb": book(cells)})
    assert found(since(root), root) == [
        "n.ipynb:cell 2:1:7 rewritten", "n.ipynb:cell 3:3:7 rewritten",
    ]  # fmt: skip


def test_a_notebook_that_was_none_is_new(tmp_path: Path) -> None:
    root = committed(tmp_path, {"n.ipynb": "{}"})
    write_tree(root, {"n.ipynb": book([FIRST])})
    assert found(since(root), root) == ["n.ipynb:cell 1:2:19 rewritten"]


# ---- repositories --------------------------------------------------------------------------------


def test_submodules_are_compared_with_the_commit_that_the_base_has(tmp_path: Path) -> None:
    library = committed(tmp_path / "library", {"l.py": OLD})
    root = committed(tmp_path / "root", {"a.py": OLD})
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    assert found(since(root), root) == ["lib/l.py:5:14 rewritten"]  # all of it is new
    commit(root)
    assert since(root).check_code() == 0
    append(root / "lib/l.py", NEW)
    assert found(since(root), root) == ["lib/l.py:9:14 rewritten"]
    commit(root / "lib")
    commit(root)
    assert since(root).check_code() == 0
    assert found(since(root, "HEAD~1"), root) == ["lib/l.py:9:14 rewritten"]


def test_a_worktree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = committed(tmp_path / "root", {"a.py": OLD})
    git(root, "worktree", "add", "-q", "../other", "-b", "other")
    append(tmp_path / "other/a.py", NEW)
    assert found(since(tmp_path / "other"), tmp_path / "other") == ["a.py:9:14 rewritten"]
    # what git tells a hook of one repository is not true of another
    monkeypatch.setenv("GIT_DIR", str(root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(root / ".git/index"))
    assert found(since(tmp_path / "other"), tmp_path / "other") == ["a.py:9:14 rewritten"]


def test_two_repositories(tmp_path: Path) -> None:
    roots = [committed(tmp_path / name, {"a.py": OLD}) for name in ("one", "two")]
    append(roots[1] / "a.py", NEW)
    report = migrate_paths(roots, diff_base="HEAD")
    assert found(report, tmp_path) == ["two/a.py:9:14 rewritten"]


# ---- the default branch --------------------------------------------------------------------------


@pytest.mark.parametrize("branch", ["main", "master", "trunk"])
def test_without_a_revision_it_is_the_default_branch(tmp_path: Path, branch: str) -> None:
    origin = committed(tmp_path / "origin", {"a.py": OLD})
    git(origin, "branch", "-M", branch)
    git(tmp_path, "clone", "-q", "origin", "clone")  # origin/HEAD says which
    root = tmp_path / "clone"
    git(root, "checkout", "-qb", "feature")
    append(root / "a.py", NEW)
    commit(root)
    run = cli(".", *CHECK, cwd=root)
    assert run.returncode == 1
    told = [line.split() for line in run.stdout.decode().splitlines()]
    assert told[:2] == [["a.py", "MOV001"], ["9:14", "MOV001", "rewritten", "safe", "x.cuda"]]
    git(root, "remote", "remove", "origin")
    git(root, "branch", "-m", "feature", "topic")
    without = cli(".", *CHECK, cwd=root)
    if branch == "trunk":  # the clone's own branch is still there, but has no usual name
        assert without.returncode == 2
        one_line(without.stderr, "no default branch", "origin/HEAD", "--diff-base REV")
    else:
        assert without.returncode == 1


def test_a_run_of_a_forge_says_what_the_change_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = committed(tmp_path / "origin", {"a.py": OLD})
    git(origin, "branch", "-M", "main")
    git(origin, "branch", "release")
    append(origin / "a.py", NEW)
    commit(origin)
    git(tmp_path, "clone", "-q", "origin", "clone")
    root = tmp_path / "clone"
    assert cli(".", *CHECK, cwd=root).returncode == 0
    monkeypatch.setenv("GITHUB_BASE_REF", "release")
    assert cli(".", *CHECK, cwd=root).returncode == 1
    monkeypatch.delenv("GITHUB_BASE_REF")
    before = git(root, "rev-parse", "HEAD~1").strip()
    monkeypatch.setenv("CI_MERGE_REQUEST_DIFF_BASE_SHA", before)
    assert cli(".", *CHECK, cwd=root).returncode == 1


# ---- what can not be answered --------------------------------------------------------------------


def test_a_shallow_clone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = committed(tmp_path / "origin", {"a.py": OLD})
    git(origin, "branch", "-M", "main")
    append(origin / "a.py", NEW)
    commit(origin)
    git(origin, "checkout", "-qb", "feature")
    append(origin / "a.py", STREAM)
    commit(origin)
    url = origin.as_uri()
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=feature", url, "clone")
    root = tmp_path / "clone"
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    run = cli(".", *CHECK, cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "origin/main", "shallow", "fetch-depth: 0")
    git(root, "fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/main")
    run = cli(".", *CHECK, cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "no commit in common", "fetch-depth: 0")


def test_no_git(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": OLD})
    run = cli(".", *CHECK, "HEAD", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "a.py", "not under version control")


def test_git_that_can_not_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = committed(tmp_path, {"a.py": OLD})

    def missing(*arguments: object, **options: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(UsageError, match="--diff-base HEAD: "):
        since(root)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*CHECK, "nope"), ("nope", "no such revision")),
        ((*CHECK, ""), ("empty",)),
        (("--target", "torchax", "--diff-base", "HEAD"), ("--check", "--diff")),
        (("--target", "torchax", "-o", "out", "--diff-base", "HEAD"), ("--check", "--diff")),
        (("--strip-todo", "--check", "--diff-base", "HEAD"), ("--strip-todo",)),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    root = committed(tmp_path, {"a.py": OLD})
    run = cli(".", *arguments, cwd=root)
    assert run.returncode == 2 and run.stdout == b""
    one_line(run.stderr, "--diff-base", *words)
    assert read_tree(root) == {"a.py": OLD.encode()}


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": OLD})
    git(tmp_path, "init", "-q")
    run = cli(".", *CHECK, cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "no default branch")


def test_standard_input_has_no_revision(tmp_path: Path) -> None:
    run = cli("-", *CHECK, "HEAD", cwd=tmp_path, stdin=b"")
    assert run.returncode == 2
    one_line(run.stderr, "--diff-base", "standard input")


def test_a_path_behind_it_is_a_revision(tmp_path: Path) -> None:
    run = cli(*CHECK, "src/", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "no PATH", "src/", "--diff-base")
