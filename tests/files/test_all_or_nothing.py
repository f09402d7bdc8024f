"""All of a run is written, or nothing; what is not the project's stays."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import COPY, cli, committed, git, one_line, read_tree, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.files import in_place, user_folders
from migrator.files.lock import only_writer
from migrator.runs.run import undo
from tests.files.trees import FILES, GPU, TPU


def test_a_disk_that_is_full_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """Here: a limit on the size of files, which some file of the runtime exceeds."""
    root = committed(tmp_path, FILES)
    before = read_tree(root, runtime=True)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    # without bytecode, of which there would be halves, too
    command = [sys.executable, "-B", "-m", "migrator", ".", "--target", "torchax"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, preexec_fn=limit)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1 and "File too large; nothing was written" in run.stderr
    assert read_tree(root, runtime=True) == before
    assert not (root / "vendor").exists()


@pytest.mark.parametrize("number", [1, 10, 20])
def test_a_disk_that_fills_up_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = committed(tmp_path, FILES)
    before = read_tree(root, runtime=True)
    stage, calls = in_place.stage, itertools.count()

    def full(temporary: Path, content: bytes, real: Path) -> list[str]:
        if next(calls) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return stage(temporary, content, real)

    monkeypatch.setattr(in_place, "stage", full)
    with pytest.raises(UsageError, match="No space left on device; nothing was written"):
        migrate_paths([root], config=COPY, write=True)
    assert read_tree(root, runtime=True) == before


@pytest.mark.parametrize("number", range(8))
def test_what_was_replaced_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = committed(tmp_path, FILES)
    before = read_tree(root, runtime=True)
    _at_replacement(monkeypatch, number, lambda: OSError(errno.EIO, "Input/output error", "b.py"))
    with pytest.raises(UsageError, match="nothing was written"):
        migrate_paths([root], config=COPY, write=True)
    monkeypatch.undo()
    assert read_tree(root, runtime=True) == before


def _at_replacement(
    monkeypatch: pytest.MonkeyPatch, number: int, what: Callable[[], BaseException]
) -> None:
    """Have something happen once, when so many files have been replaced."""
    really = Path.replace
    count = iter(range(10**6))

    def replace(self: Path, to: Path) -> Path:
        if next(count) == number:
            raise what()
        return really(self, to)

    monkeypatch.setattr(Path, "replace", replace)


@pytest.mark.parametrize("what", ["edited", "deleted", "a link"])
def test_a_file_that_changes_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    root = committed(tmp_path / "p", FILES)
    really = in_place.stage

    def stage(temporary: Path, content: bytes, real: Path) -> list[str]:
        if real.name == "b.py":
            real.unlink()
            if what == "edited":
                real.write_text(GPU + "# mine\n")
            elif what == "a link":
                (tmp_path / "other.py").write_text("other\n")
                real.symlink_to(tmp_path / "other.py")
        return really(temporary, content, real)

    monkeypatch.setattr(in_place, "stage", stage)
    with pytest.raises(UsageError, match=r"b\.py has changed in the meantime; nothing was written"):
        migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == FILES["a.py"]
    assert not (root / "vendor").exists()
    if what == "edited":
        assert (root / "b.py").read_text() == GPU + "# mine\n"
    if what == "a link":
        assert (tmp_path / "other.py").read_text() == "other\n"


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    with only_writer([root.resolve()]):
        for target in ("torchax", "torch_xla"):
            with pytest.raises(UsageError, match="another tpu-migrate is writing there"):
                migrate_paths([root / "deep"], target, write=True)
        assert migrate_paths([root]).changed  # looking is fine
    assert migrate_paths([root], write=True).exit_code == 0


def test_a_lock_that_can_not_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = committed(tmp_path / "p", FILES)
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("TPU_MIGRATE_STATE", str(tmp_path / "state"))
    with pytest.raises(UsageError, match="cannot create a lock") as error:
        migrate_paths([root], write=True)
    assert "TPU_MIGRATE_STATE" in str(error.value) and "\n" not in str(error.value)
    assert (root / "b.py").read_text() == GPU


def _killed(root: Path, number: int, target: str = "torchax") -> None:
    """A run that is killed when so many files have been replaced."""
    program = f"""
        import os, signal
        from pathlib import Path
        from migrator import migrate_paths
        from migrator.config import Config
        really, count = Path.replace, iter(range(10**6))
        def replace(self, to):
            if next(count) == {number}:
                os.kill(os.getpid(), signal.SIGKILL)
            return really(self, to)
        Path.replace = replace
        migrate_paths([{str(root)!r}], {target!r}, config=Config(runtime="copy"), write=True)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)])
    assert run.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [0, 1, 3, 11])
def test_a_run_that_was_killed_is_taken_back_by_the_next(tmp_path: Path, number: int) -> None:
    root = committed(tmp_path, FILES)
    _killed(root, number)
    if number > 1:
        assert not (root / "tpu_runtime").exists() or any((root / "tpu_runtime").iterdir())
    # For another target: what the first has written would be in its way.
    report = migrate_paths([root], "torch_xla", config=COPY, write=True)
    assert report.exit_code == 0
    assert len(report.notes) == (number > 0)  # before, there was nothing to take back
    assert b"torch_xla" in (root / "tpu_runtime" / "__init__.py").read_bytes()
    assert not list(root.rglob("*.tmp")) and not list(user_folders.state_folder().rglob("*.tmp"))
    assert migrate_paths([root], "torch_xla").check_code() == 0


def test_an_edit_since_a_killed_run_is_not_lost(tmp_path: Path) -> None:
    """What was edited imports the runtime: without it, nothing else is taken back, either."""
    root = committed(tmp_path, FILES)
    runtime = migrate_paths([root], config=COPY).companions
    _killed(root, 1 + len(runtime) + 1)  # the journal, the runtime, one source
    changed = [name for name in FILES if (root / name).read_text() != FILES[name]]
    assert changed, "the run was to be killed between sources"
    mine = root / changed[0]
    mine.write_text(f"{mine.read_text()}# mine\n")
    before = read_tree(root, runtime=True)
    with pytest.raises(UsageError, match=f"{mine}: has changed since a run that was interrupted"):
        migrate_paths([root], write=True)
    assert read_tree(root, runtime=True) == before
    git(root, "restore", changed[0])  # the way on that is named
    undo([root])
    assert read_tree(root, runtime=True) == {k: v.encode() for k, v in FILES.items()}


def test_an_edit_of_what_a_killed_run_had_not_come_to_stays(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    runtime = migrate_paths([root], config=COPY).companions
    _killed(root, 1 + len(runtime) + 1)
    [mine, *_] = [root / name for name in FILES if (root / name).read_text() == FILES[name]]
    mine.write_text(f"{mine.read_text()}# mine\n")
    report = migrate_paths([root], write=True, config=Config(select=("ADV",)))
    assert report.notes[1:] == [f"{mine}: has changed since; left as it is"]
    assert mine.read_text().endswith("# mine\n")
    assert not (root / "tpu_runtime").exists()
    for name in {*FILES} - {mine.relative_to(root).as_posix()}:
        assert (root / name).read_text() == FILES[name]


@pytest.mark.parametrize("how", [["--check"], ["--diff"], ["-o", "../out"]])
def test_a_run_that_only_looks_says_that_one_was_interrupted(
    tmp_path: Path, how: list[str]
) -> None:
    root = committed(tmp_path / "p", FILES)
    assert b"interrupted" not in b"".join(_said(root, how))
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    _killed(root, 3)
    before = read_tree(root, runtime=True)
    assert b"an earlier run was interrupted" in b"".join(_said(root, how))
    assert read_tree(root, runtime=True) == before
    undo([root])
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert b"interrupted" not in b"".join(_said(root, how))


def _said(root: Path, how: list[str]) -> tuple[bytes, bytes]:
    found = cli(".", "--target", "torchax", *how, cwd=root)
    return found.stdout, found.stderr


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EBUSY, "mounted, or in use"), (errno.ENOSPC, "Make room"), (errno.EROFS, "-o DIR"),
        (errno.EACCES, "change the rights"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", ["stage", "replace"])
def test_a_file_that_can_not_be_written_is_named_with_the_way_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, advice: str
) -> None:
    root = committed(tmp_path, FILES)
    before = read_tree(root, runtime=True)
    stage, replace = in_place.stage, Path.replace

    def fails(temporary: Path, to: Path) -> None:
        if to.name == "b.py":
            raise OSError(number, os.strerror(number), str(temporary), None, str(to))

    def staged(temporary: Path, content: bytes, real: Path) -> list[str]:
        fails(temporary, real)
        return stage(temporary, content, real)

    def replaced(self: Path, to: Path) -> Path:
        fails(self, to)
        return replace(self, to)

    if step == "stage":
        monkeypatch.setattr(in_place, "stage", staged)
    else:
        monkeypatch.setattr(Path, "replace", replaced)
    found = cli(".", "--target", "torchax", cwd=root)
    assert found.returncode == 2
    line = one_line(found.stderr, "b.py: ", f"{os.strerror(number)}; nothing was written. ", advice)
    assert ".tmp" not in line
    assert read_tree(root, runtime=True) == before


def test_a_runtime_of_which_nothing_was_written_is_no_obstacle(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    (root / "tpu_runtime").mkdir()
    (root / "tpu_runtime" / ".tpu-migrate-0123456789abcdef.tmp").write_text("half")
    assert migrate_paths([root], config=COPY, write=True).exit_code == 0
    assert (root / "tpu_runtime" / "__init__.py").is_file()


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    program = f"""
        import os, time
        from pathlib import Path
        from migrator.config import Config
        from migrator.runs.pool import migrate_all
        from migrator.targets import find_target
        from migrator.runs.worker import Worker
        class Waits(Worker):
            def __call__(self, path):
                Path({str(tmp_path)!r}, f"worker-{{os.getpid()}}").touch()
                time.sleep(600)
        files = [Path({str(tmp_path)!r}, f"{{n}}.py") for n in range(20)]
        for file in files:
            file.write_text("import torch\\n" + "x.cuda()\\n" * 10000)
        config = Config(jobs=2)
        worker = Waits([], [find_target("torchax")], config)
        migrate_all(files, worker, None)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    workers: list[int] = []
    _until(lambda: workers.extend(_pids(tmp_path)) or len(workers) >= 2)
    parent.kill()
    parent.wait()
    _until(lambda: not any(map(_is_alive, workers)))


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _pids(folder: Path) -> list[int]:
    return [int(path.name.partition("-")[2]) for path in folder.glob("worker-*")]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- what is not the project's -------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_link_that_leads_out_of_the_project_is_not_followed(tmp_path: Path, named: bool) -> None:
    other = committed(tmp_path / "other", {"a.py": GPU})
    root = committed(tmp_path / "p", {"b.py": GPU})
    (root / "a.py").symlink_to(other / "a.py")
    report = migrate_paths([root / "a.py" if named else root], write=True, allow_dirty=True)
    assert (other / "a.py").read_text() == GPU
    said = report.errors if named else report.notes
    assert len(said) == 1 and "a.py: is a link that leads out of the project" in said[0]
    assert report.exit_code == (2 if named else 0)
    assert (root / "b.py").read_text() == (GPU if named else TPU)


def test_a_link_to_another_folder_of_the_repository_is_followed(tmp_path: Path) -> None:
    root = committed(tmp_path, {"shared/a.py": GPU, "app/b.py": GPU})
    (root / "app" / "a.py").symlink_to("../shared/a.py")
    migrate_paths([root / "app"], write=True)
    assert (root / "app" / "a.py").is_symlink() and (root / "shared" / "a.py").read_text() == TPU


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "a runtime"])
@pytest.mark.parametrize("copied", [True, False])
def test_a_runtime_that_leads_out_of_the_project_is_not_written(
    tmp_path: Path, there: str, copied: bool
) -> None:
    root = committed(tmp_path / "p", FILES)
    elsewhere = tmp_path / "elsewhere" / "tpu_runtime"
    if there == "an empty folder":
        elsewhere.mkdir(parents=True)
    if there == "a runtime":
        there_too = write_tree(tmp_path / "elsewhere", FILES)
        migrate_paths([there_too], config=COPY, write=True, allow_dirty=True)
        (elsewhere / "device.py").write_text("# mine\n")
    before = read_tree(tmp_path / "elsewhere", runtime=True) if elsewhere.exists() else {}
    (root / "tpu_runtime").symlink_to(elsewhere)
    if copied:
        report = migrate_paths([root], config=COPY, output=tmp_path / "out")
    else:
        report = migrate_paths([root], config=COPY, write=True, allow_dirty=True)
    assert report.exit_code == 2 and "tpu_runtime" in report.errors[0]
    after = read_tree(tmp_path / "elsewhere", runtime=True) if elsewhere.exists() else {}
    assert after == before


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would wait for a writer for ever."""
    root = committed(tmp_path, {"a.py": GPU, "sub/b.py": GPU})
    for name in ("p.py", "pyproject.toml", "setup.py", "sub/pyproject.toml", "sub/x.ipynb"):
        os.mkfifo(root / name)
    (root / "zero.py").symlink_to("/dev/zero")
    command = [sys.executable, "-m", "migrator", ".", "--target", "torchax", "--check"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    lines = found.stdout.splitlines()
    for name in ("p.py", "setup.py", "x.ipynb"):
        assert any(name in line and "not a regular file" in line for line in lines), name
    assert found.returncode == 2
    assert any("zero.py: is a link that leads out of the project" in line for line in lines)
