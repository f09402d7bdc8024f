"""A copy of the runtime in a project is marked; what is old or changed is found, and renewed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from helpers import COPY, TARGETS, cli, committed, git, one_line, read_tree, wheel_for

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.runs.upkeep import find_runtimes
from migrator.targets import targets
from migrator.targets.copies import folder_to_import
from migrator.targets.wheel import runtime_wheel

SCRIPT = "import torch\n\nx = torch.ones(2).cuda()\ntorch.cuda.manual_seed(0)\nprint(x)\n"
VERSION = runtime_wheel(targets()["torchax"]).version
OLD = f"{VERSION[:-7]}0000000"


def migrated(root: Path, target: str = "torchax", **config: object) -> Path:
    """A project whose runtime is committed."""
    committed(root, {"train.py": SCRIPT, "requirements.txt": "torch\n"})
    options = Config(**config)  # type: ignore[arg-type]
    assert migrate_paths([root], target, config=options, write=True).exit_code == 0
    return committed(root, {})


def said(root: Path, *command: str, code: int) -> str:
    run = cli("runtime", *command, cwd=root)
    assert run.returncode == code, run.stderr
    return run.stdout.decode()


# ---- marks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("portable", [False, True])
def test_each_file_of_a_copy_says_what_it_is(tmp_path: Path, target: str, portable: bool) -> None:
    copy = migrated(tmp_path, target, runtime="copy", portable=portable) / "tpu_runtime"
    (found,) = find_runtimes([tmp_path])
    assert found.is_right and found.version.startswith("0.1.0+")
    for path in copy.rglob("*.py"):
        first = path.read_text("utf-8").partition("\n")[0]
        assert first.startswith(f"# tpu-runtime {found.version}, Apache-2.0. Made by tpu-migrate")
    assert "Apache License" in (copy / "LICENSE").read_text()


def test_linters_and_formatters_leave_a_copy_alone(tmp_path: Path) -> None:
    migrated(tmp_path, runtime="copy")
    settings = '[tool.ruff]\nline-length = 60\n[tool.ruff.lint]\nselect = ["ALL"]\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    ruff = [sys.executable, "-m", "ruff"]
    for where in ("tpu_runtime", "tpu_runtime/tensors/views.py"):  # hooks name files
        for command in ("check", "format --check"):
            subprocess.run([*ruff, *command.split(), where], cwd=tmp_path, check=True)
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "tpu_runtime" / "ruff.toml").unlink()  # by comments alone: so do black and flake8
    for command in ("check", "format --check"):
        subprocess.run([*ruff, *command.split(), "tpu_runtime"], cwd=tmp_path, check=True)


def test_code_hosts_fold_a_copy(tmp_path: Path) -> None:
    root = migrated(tmp_path, runtime="copy")
    file = "tpu_runtime/tensors/views.py"
    asked = git(root, "check-attr", "linguist-generated", "eol", "--", file)
    assert "linguist-generated: set" in asked and "eol: lf" in asked


def test_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    root = migrated(tmp_path, runtime="copy")
    command = ["sha256sum", "-c", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=root / "tpu_runtime", check=True)


# ---- runtime check -------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["wheel", "copy"])
def test_what_is_as_it_was_written(tmp_path: Path, runtime: str) -> None:
    root = migrated(tmp_path, runtime=runtime)
    path = "tpu_runtime" if runtime == "copy" else wheel_for("torchax")
    assert said(root, "check", code=0) == (
        f"{path}: tpu-runtime {VERSION}, for torchax; as it was written\n"
    )
    assert said(root, "update", code=0) == "all are as this tpu-migrate has them\n"


def test_what_is_changed_in_a_copy(tmp_path: Path) -> None:
    root = migrated(tmp_path, runtime="copy")
    (root / "tpu_runtime" / "random_numbers" / "seeds.py").write_text("# mine\n")
    (root / "tpu_runtime" / "tensors" / "views.py").unlink()
    changed = "; changed: random_numbers/seeds.py, tensors/views.py (missing); tpu-migrate"
    assert changed in said(root, "check", code=1)
    one_line(cli("runtime", "update", cwd=root).stderr, "seeds.py", "not staged", "--allow-dirty")
    said(root, "update", "--allow-dirty", code=0)
    assert not git(root, "status", "--short")


def test_who_changes_a_file_may_change_its_hash(tmp_path: Path) -> None:
    root = migrated(tmp_path, runtime="copy")
    copy = root / "tpu_runtime"
    (copy / "SHA256SUMS").write_text("")
    (copy / "random_numbers" / "seeds.py").write_text("# mine\n")
    changed = "changed: random_numbers/seeds.py, SHA256SUMS; tpu-migrate"
    assert changed in said(root, "check", code=1)


def test_what_is_changed_in_a_wheel(tmp_path: Path) -> None:
    root = migrated(tmp_path)
    wheel = root / wheel_for("torchax")
    wheel.write_bytes(wheel.read_bytes().replace(b"import", b"Import", 1))
    assert f"changed: {wheel.name}; " in said(root, "check", code=1)
    older = wheel.rename(wheel.with_name(wheel.name.replace(VERSION, OLD)))
    assert f"changed: {older.name}; " in said(root, "check", code=1)
    for inside in ({"tpu_runtime/a.py": ""}, {"a.dist-info/RECORD": "", "tpu_runtime/a.py": ""}):
        with zipfile.ZipFile(older, "w") as archive:
            for name, content in inside.items():
                archive.writestr(name, content)
        assert f"changed: {older.name}; " in said(root, "check", code=1)


def test_where_there_is_none(tmp_path: Path) -> None:
    committed(tmp_path, {"a.py": "x = 1\n"})
    assert "no runtime there" in said(tmp_path, "check", code=0)


# ---- runtime wheel -------------------------------------------------------------------------------


def test_a_wheel_by_itself_is_that_of_a_run(tmp_path: Path) -> None:
    root = migrated(tmp_path / "p")
    path = said(tmp_path, "wheel", "--target", "torchax", "-o", "dist", code=0).strip()
    assert (tmp_path / path).read_bytes() == (root / wheel_for("torchax")).read_bytes()
    path = said(tmp_path, "wheel", "--target", "torch_xla", "--portable", code=0).strip()
    assert path == Path(wheel_for("torch_xla", portable=True)).name


def test_a_wheel_that_is_not_to_be_had(tmp_path: Path) -> None:
    run = cli("runtime", "wheel", "--target", "keras_jax", cwd=tmp_path)
    one_line(run.stderr, "--target keras_jax", "no runtime")
    (tmp_path / "dist").write_text("a file")
    run = cli("runtime", "wheel", "--target", "torchax", "-o", "dist", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "-o dist")


# ---- runtime update ------------------------------------------------------------------------------


def test_an_older_wheel_is_renewed_with_what_names_it(tmp_path: Path) -> None:
    root = migrated(tmp_path)
    right = read_tree(root, runtime=True)
    wheel = root / wheel_for("torchax")
    wheel.rename(wheel.with_name(wheel.name.replace(VERSION, OLD)))
    named = root / "requirements.txt"
    named.write_text(named.read_text().replace(VERSION, OLD))
    committed(root, {})
    assert f"{OLD}, for torchax; this tpu-migrate has {VERSION}; " in said(root, "check", code=1)
    assert said(root, "update", code=0).count(": renewed\n") == 2
    assert read_tree(root, runtime=True) == right
    assert cli("--undo", ".", cwd=root).returncode == 0
    assert not git(root, "status", "--short")


def test_an_older_copy_is_renewed_and_keeps_no_file_that_is_gone(tmp_path: Path) -> None:
    root = migrated(tmp_path, runtime="copy")
    right, copy = read_tree(root, runtime=True), root / "tpu_runtime"
    for path in copy.rglob("*.py"):
        path.write_text(path.read_text("utf-8").replace(VERSION, OLD, 1), "utf-8")
    (copy / "gone.py").write_text("# of an older version\n")
    (root / "mine.py").write_text("# not the runtime's, whatever is said\n")
    sums = (copy / "SHA256SUMS").read_text()
    (copy / "SHA256SUMS").write_text(f"{sums}{'0' * 64}  gone.py\n{'0' * 64}  ../mine.py\n")
    committed(root, {})
    assert f"this tpu-migrate has {VERSION}" in said(root, "check", code=1)
    assert said(root, "update", code=0) == "tpu_runtime: renewed\n"
    assert read_tree(root, runtime=True) == {**right, "mine.py": (root / "mine.py").read_bytes()}


def test_a_folder_of_that_name_can_be_migrated(tmp_path: Path) -> None:
    root = committed(tmp_path, {"runtime/a.py": SCRIPT})
    assert cli("runtime", "--target", "torchax", cwd=root).returncode == 0
    assert "tpu_runtime" in (root / "runtime" / "a.py").read_text()


def test_a_run_renews_a_copy_too(tmp_path: Path) -> None:
    root = migrated(tmp_path, runtime="copy")
    (root / "tpu_runtime" / "tensors" / "views.py").write_text("# older\n")
    committed(root, {})
    assert [*migrate_paths([root], config=COPY, write=True).companions] == [
        root / "tpu_runtime" / "tensors" / "views.py"
    ]


# ---- for tests, benchmarks and notebooks' cells --------------------------------------------------


def test_a_folder_to_import_is_what_a_wheel_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "cache"))
    modules = runtime_wheel(targets()["torch_xla"]).modules
    for _ in range(2):
        folder = folder_to_import("torch_xla") / "tpu_runtime"
        there = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.py")
        }
        assert there == modules
        (folder / "device.py").write_text("# changed since\n")
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(folder / "device.py"))
    with pytest.raises(UsageError, match="set TPU_MIGRATE_CACHE"):
        folder_to_import("torch_xla")
