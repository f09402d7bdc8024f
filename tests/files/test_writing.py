"""Writing: nothing is lost, whatever is written and whatever goes wrong."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import cli, committed, git, read_tree, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.files import in_place, places
from migrator.files.copying import check_output, copy
from migrator.files.in_place import Change
from migrator.files.lock import only_writer
from migrator.files.overwriting import unsafe_to_write
from migrator.files.staging import write
from migrator.runs.run import undo

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TPU = 'import torch\n\n\ndef f(x):\n    return x.to("jax")\n'


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("TPU_MIGRATE_STATE", str(tmp_path_factory.mktemp("state")))


# ---- what may be written -------------------------------------------------------------------------


def test_a_committed_file_may_be_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    assert migrate_paths([root], write=True).exit_code == 0
    assert (root / "a.py").read_text() == TPU


def test_a_staged_file_may_be_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "old\n"})
    (root / "a.py").write_text(GPU)
    git(root, "add", "a.py")
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU
    assert git(root, "show", ":a.py") == GPU  # the index still holds what was there


def test_a_new_staged_file_may_be_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"b.txt": ""})
    write_tree(root, {"a.py": GPU})
    git(root, "add", "a.py")
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU


def test_before_the_first_commit_the_index_counts(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": GPU})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    migrate_paths([tmp_path], write=True)
    assert (tmp_path / "a.py").read_text() == TPU


@pytest.mark.parametrize("state", ["modified", "untracked", "ignored", "no repository"])
def test_a_file_that_git_does_not_hold_is_refused(tmp_path: Path, state: str) -> None:
    files = {"a.py": GPU, "b.py": GPU, "ä ö.py": GPU, ".gitignore": "c.py\n"}
    if state == "no repository":
        write_tree(tmp_path, dict(files))
        wrong = tmp_path / "a.py"
    else:
        committed(tmp_path, dict(files))
        wrong = tmp_path / {"modified": "ä ö.py", "untracked": "d.py", "ignored": "c.py"}[state]
        wrong.write_text(f"{GPU}# by hand\n")
    before = read_tree(tmp_path)
    with pytest.raises(UsageError, match="--allow-dirty") as error:
        migrate_paths([tmp_path], write=True)
    assert wrong.name in str(error.value) and "\n" not in str(error.value)
    assert read_tree(tmp_path, runtime=True) == before  # nothing at all was written
    migrate_paths([tmp_path], write=True, allow_dirty=True)
    assert wrong.read_text().startswith(TPU)


def test_dirty_files_that_do_not_change_are_no_obstacle(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": "x = 1\n"})
    (root / "b.py").write_text("x = 2\n")
    (root / "notes.txt").write_text("mine\n")
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU


def test_our_own_last_output_counts_as_clean(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    migrate_paths([root], write=True)
    text = migrate_paths([root], "torch_xla", write=True)
    assert not text.changed
    (root / "a.py").write_text(TPU + GPU)  # edited since: refused again
    with pytest.raises(UsageError):
        migrate_paths([root], write=True)


def test_own_output_may_be_overwritten_by_a_later_run(tmp_path: Path) -> None:
    """A first run with --select, then the rest: no commit is needed between the two."""
    root = committed(tmp_path, {"a.py": f"import torch\n{GPU}torch.cuda.empty_cache()\n"})
    migrate_paths([root], write=True, config=Config(select=("MOV",)))
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == f"import torch\n{TPU}"


def test_a_file_in_a_linked_work_tree_or_submodule(tmp_path: Path) -> None:
    root = committed(tmp_path / "main", {"a.py": GPU})
    git(root, "worktree", "add", "-q", "../tree")
    migrate_paths([tmp_path / "tree"], write=True)
    assert (tmp_path / "tree" / "a.py").read_text() == TPU
    assert (root / "a.py").read_text() == GPU


def test_new_files_are_never_a_problem(tmp_path: Path) -> None:
    assert unsafe_to_write({tmp_path / "new.py": None}) == []


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_work_that_git_is_told_not_to_look_at_is_not_lost(tmp_path: Path, flag: str) -> None:
    root = committed(tmp_path, {"a.py": "old\n"})
    git(root, "update-index", f"--{flag}", "a.py")
    (root / "a.py").write_text(GPU)
    with pytest.raises(UsageError, match=flag):
        migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == GPU


def test_other_line_ends_in_the_work_tree_are_no_changes(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, ".gitattributes": "*.py text eol=crlf\n"})
    (root / "a.py").unlink()
    git(root, "checkout", "-q", "a.py")
    assert b"\r\n" in (root / "a.py").read_bytes()
    migrate_paths([root], write=True)
    assert (root / "a.py").read_bytes() == TPU.replace("\n", "\r\n").encode()


def test_programs_that_the_configuration_of_git_names_are_not_run(tmp_path: Path) -> None:
    root = committed(tmp_path / "p", {"a.py": GPU})
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(root, "config", "core.fsmonitor", str(hook))
    migrate_paths([root], write=True)
    migrate_paths([root], diff_base="HEAD")
    assert not (tmp_path / "ran").exists()


def test_companions_that_the_user_edited_are_refused(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "import torch\ntorch.cuda.seed()\n"})
    migrate_paths([root], write=True)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "migrated")
    module = root / "tpu_runtime" / "seeds.py"
    module.write_text(module.read_text() + "# mine\n")
    (root / "b.py").write_text("import torch\ntorch.cuda.seed()\n")
    git(root, "add", "b.py")
    with pytest.raises(UsageError, match=r"seeds\.py"):
        migrate_paths([root], write=True)
    assert module.read_text().endswith("# mine\n")


# ---- writing -------------------------------------------------------------------------------------


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text("old")
    path.chmod(0o750)
    write(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert path.read_bytes() == b"new"


def test_new_files_get_the_usual_permissions(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "er.py", b"new")
    (tmp_path / "plain").write_text("")
    modes = {
        stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "deep" / "er.py", tmp_path / "plain")
    }
    assert len(modes) == 1


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.py", tmp_path / "a.py"
    real.write_text("old")
    link.symlink_to(Path("real", "a.py"))
    write(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new" and not real.is_symlink()


@pytest.mark.parametrize("call", ["Path.replace", "os.fdopen", "os.fsync"])
def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a.py"
    path.write_text("old")

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    owner, _, name = call.partition(".")
    monkeypatch.setattr({"os": os, "Path": Path}[owner], name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, b"new")
    monkeypatch.undo()
    assert path.read_text() == "old"


def test_names_may_be_as_long_as_the_file_system_has_them(tmp_path: Path) -> None:
    name = f"{'n' * 252}.py"
    root = committed(tmp_path, {name: GPU})
    migrate_paths([root], write=True)
    assert (root / name).read_text() == TPU


def test_what_is_not_kept_of_a_file_is_said(tmp_path: Path) -> None:
    root = committed(tmp_path / "p", {"a.py": GPU})
    os.link(root / "a.py", tmp_path / "other.py")
    os.setxattr(root / "a.py", "user.mine", b"kept")
    report = migrate_paths([root], write=True)
    assert report.notes == [f"{root / 'a.py'}: its other hard links keep the old content"]
    assert (tmp_path / "other.py").read_text() == GPU
    assert os.getxattr(root / "a.py", "user.mine") == b"kept"


# ---- all of a run, or nothing --------------------------------------------------------------------

FILES = {"a.py": "import torch\ntorch.cuda.seed()\n", "b.py": GPU, "deep/c.py": GPU}


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
    assert not (root / "tpu_runtime").exists()


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
        migrate_paths([root], write=True)
    assert read_tree(root, runtime=True) == before


@pytest.mark.parametrize("number", range(8))
def test_what_was_replaced_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = committed(tmp_path, FILES)
    before = read_tree(root, runtime=True)
    _at_replacement(monkeypatch, number, lambda: OSError(errno.EIO, "Input/output error", "b.py"))
    with pytest.raises(UsageError, match="nothing was written"):
        migrate_paths([root], write=True)
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
    with pytest.raises(UsageError, match=r"b\.py has changed meanwhile; nothing was written"):
        migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == FILES["a.py"]
    assert not (root / "tpu_runtime").exists()
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
    with pytest.raises(UsageError, match="a lock can not be made") as error:
        migrate_paths([root], write=True)
    assert "TPU_MIGRATE_STATE" in str(error.value) and "\n" not in str(error.value)
    assert (root / "b.py").read_text() == GPU


def _killed(root: Path, number: int, target: str = "torchax") -> None:
    """A run that is killed when so many files have been replaced."""
    program = f"""
        import os, signal
        from pathlib import Path
        from migrator import migrate_paths
        really, count = Path.replace, iter(range(10**6))
        def replace(self, to):
            if next(count) == {number}:
                os.kill(os.getpid(), signal.SIGKILL)
            return really(self, to)
        Path.replace = replace
        migrate_paths([{str(root)!r}], {target!r}, write=True)
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
    report = migrate_paths([root], "torch_xla", write=True)
    assert report.exit_code == 0
    assert len(report.notes) == (number > 0)  # before, there was nothing to take back
    assert b"torch_xla" in (root / "tpu_runtime" / "__init__.py").read_bytes()
    assert not list(root.rglob("*.tmp")) and not list(places.state_folder().rglob("*.tmp"))
    assert migrate_paths([root], "torch_xla").check_code() == 0


def test_an_edit_since_a_killed_run_stays(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    runtime = migrate_paths([root]).companions
    _killed(root, 1 + len(runtime) + 1)  # the journal, the runtime, one source
    changed = [name for name in FILES if (root / name).read_text() != FILES[name]]
    assert changed, "the run was to be killed between sources"
    mine = root / changed[0]
    mine.write_text(f"{mine.read_text()}# mine\n")
    report = migrate_paths([root], write=True, config=Config(select=("ADV",)))
    assert report.notes[1:] == [f"{mine}: has changed since; left as it is"]
    assert mine.read_text().endswith("# mine\n")
    for name in set(FILES) - {changed[0]}:
        assert (root / name).read_text() == FILES[name]


def test_a_runtime_of_which_nothing_was_written_is_no_obstacle(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    (root / "tpu_runtime").mkdir()
    (root / "tpu_runtime" / ".tpu-migrate-0123456789abcdef.tmp").write_text("half")
    assert migrate_paths([root], write=True).exit_code == 0
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
        migrate_paths([write_tree(tmp_path / "elsewhere", FILES)], write=True, allow_dirty=True)
        (elsewhere / "seeds.py").write_text("# mine\n")
    before = read_tree(tmp_path / "elsewhere", runtime=True) if elsewhere.exists() else {}
    (root / "tpu_runtime").symlink_to(elsewhere)
    if copied:
        report = migrate_paths([root], output=tmp_path / "out")
    else:
        report = migrate_paths([root], write=True, allow_dirty=True)
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


# ---- taking back ---------------------------------------------------------------------------------


def test_the_last_run_is_taken_back_byte_for_byte(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    (root / "mixed.py").write_bytes(b"import torch  # \xc3\xa4\r\nx.cuda()\n\r\n")
    before = read_tree(root, runtime=True)
    migrate_paths([root], write=True, allow_dirty=True)
    assert read_tree(root, runtime=True) != before
    done = undo([root / "deep"])  # any path of the project
    assert len(done.restored) == 4 and len(done.removed) > 10 and not done.changed
    assert read_tree(root, runtime=True) == before
    assert not (root / "tpu_runtime").exists()
    with pytest.raises(UsageError, match="no run to take back"):
        undo([root])
    with pytest.raises(UsageError, match=r"mixed\.py is not tracked"):  # it is no output of ours
        migrate_paths([root], write=True)


def test_what_has_changed_since_is_named_and_left(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    migrate_paths([root], write=True)
    with (root / "b.py").open("a") as file:
        file.write("# mine\n")
    found = cli("--undo", ".", cwd=root)
    assert found.returncode == 1
    assert found.stderr.decode() == f"{root / 'b.py'}: has changed since; left as it is\n"
    assert "restored 2 files\n" in found.stdout.decode()
    assert (root / "b.py").read_text() == TPU + "# mine\n"
    assert (root / "a.py").read_text() == FILES["a.py"]


def test_what_a_run_wrote_over_an_earlier_one_is_the_earlier_ones(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": f"import torch\n{GPU}torch.cuda.empty_cache()\n"})
    migrate_paths([root], write=True, config=Config(select=("MOV",)))
    first = read_tree(root)
    migrate_paths([root], write=True)
    undo([root])
    assert read_tree(root) == first
    migrate_paths([root], write=True)  # still our own output
    assert (root / "a.py").read_text() == f"import torch\n{TPU}"


def test_a_journal_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    migrate_paths([root], write=True)
    [journal] = places.state_folder().rglob("last.zip")
    journal.write_bytes(journal.read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"last\.zip: can not be read as the journal of a run"):
        undo([root])


def test_unchanged_files_are_not_written(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": GPU, "b.py": "x = 1\n", "c.py": "loss = y.cpu()\n"})
    times = {name: (root / name).stat().st_mtime_ns for name in ("b.py", "c.py")}
    migrate_paths([root], write=True)
    assert times == {name: (root / name).stat().st_mtime_ns for name in times}


def test_a_user_without_a_home_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TPU_MIGRATE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert places.cache_folder().is_absolute() and places.cache_folder().is_absolute()


def test_folders_of_the_user_are_never_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard has relative ones ignored: they would lie in the project."""
    for kind in ("CACHE", "STATE"):
        monkeypatch.delenv(f"TPU_MIGRATE_{kind}")
        monkeypatch.setenv(f"XDG_{kind}_HOME", "relative")
    monkeypatch.setattr(sys, "platform", "linux")
    for folder in (places.cache_folder(), places.state_folder()):
        assert folder.is_absolute() and "relative" not in folder.parts


def test_a_cache_that_can_not_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "cache"))
    root = committed(tmp_path / "p", {"a.py": GPU})
    migrate_paths([root], write=True)
    assert (root / "a.py").read_text() == TPU


# ---- -o ------------------------------------------------------------------------------------------


def test_the_copy_is_whole_and_the_source_untouched(tmp_path: Path) -> None:
    root = committed(tmp_path / "in", {"a.py": GPU, "data/x.bin": b"\0\1", "run.sh": "#!/bin/sh\n"})
    write_tree(root, {"untracked.py": GPU, "untracked.txt": "t"})
    (root / "run.sh").chmod(0o755)
    (root / "link.py").symlink_to("a.py")
    (root / "empty").mkdir()
    before = read_tree(root, runtime=True)
    migrate_paths([root], output=tmp_path / "out")
    out = tmp_path / "out"
    assert read_tree(root, runtime=True) == before
    new = TPU.encode()
    assert read_tree(out) == before | {"a.py": new, "untracked.py": new, "link.py": new}
    assert (out / "link.py").is_symlink() and not (out / "a.py").is_symlink()
    assert not (out / ".git").exists() and (out / "empty").is_dir()
    assert stat.S_IMODE((out / "run.sh").stat().st_mode) == 0o755


def test_a_copy_of_one_file(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "import torch\ntorch.cuda.seed()\n", "b.py": GPU})
    migrate_paths([tmp_path / "a.py"], output=tmp_path / "out")
    assert sorted(read_tree(tmp_path / "out")) == ["a.py"]
    assert (tmp_path / "out" / "tpu_runtime" / "__init__.py").is_file()
    assert not (tmp_path / "tpu_runtime").exists()


@pytest.mark.parametrize("place", [".", "inner", "deep/er", "full", "file", ".."])
def test_an_output_that_mixes_with_something_is_refused(tmp_path: Path, place: str) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    write_tree(tmp_path, {"full/x": "", "file": ""})
    output = tmp_path / place if place in ("full", "file") else root / place
    with pytest.raises(UsageError):
        check_output(root, output)
    with pytest.raises(UsageError):
        migrate_paths([root], output=output)
    assert read_tree(root) == {"a.py": GPU.encode()}


def test_an_output_inside_through_a_link_is_refused(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(UsageError):
        check_output(root, tmp_path / "link" / "out")


def test_an_empty_folder_is_a_fine_output(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    (tmp_path / "out").mkdir()
    migrate_paths([root], output=tmp_path / "out")
    assert read_tree(tmp_path / "out") == {"a.py": TPU.encode()}


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copytree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy(root, tmp_path / "out", [])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p"]


def test_links_that_can_not_be_made_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"p/a.py": GPU})
    (tmp_path / "p/link.py").symlink_to("a.py")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(1314, "A required privilege is not held by the client")  # as on Windows

    monkeypatch.setattr(os, "symlink", refuse)
    change = Change(tmp_path / "p" / "a.py", GPU.encode(), TPU.encode())
    (problem,) = copy(tmp_path / "p", tmp_path / "q", [change])
    assert "link.py: not copied: " in problem and "privilege" in problem
    assert (tmp_path / "q/a.py").read_text() == TPU


def test_files_that_can_not_be_copied_are_named(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    os.mkfifo(root / "pipe")
    (root / "dangling").symlink_to("nowhere")
    report = migrate_paths([root], output=tmp_path / "out")
    assert any("pipe" in error for error in report.errors)
    assert (tmp_path / "out" / "a.py").read_text() == TPU
    assert (tmp_path / "out" / "dangling").is_symlink()


def test_a_copy_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, {"a.py": "import torch\nx = torch.ones(1).cuda()\n"})
    result = cli("a.py", "--target", "torchax", "-o", "a.py/x", cwd=tree)
    assert result.returncode == 2
    assert result.stderr.decode() == "tpu-migrate: -o a.py/x: File exists; nothing was written\n"
    assert (tree / "a.py").is_file()


def test_a_link_to_an_empty_folder_is_a_fine_output(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").symlink_to("empty")
    migrate_paths([root], output=tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert read_tree(tmp_path / "empty") == {"a.py": TPU.encode()}


def test_what_a_killed_copy_left_goes(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p", FILES)
    program = f"""
        import os, signal, shutil
        from migrator import migrate_paths
        from migrator.files import copying
        copying._put = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        migrate_paths([{str(root)!r}], output={str(tmp_path / "out")!r})
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)])
    assert run.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    migrate_paths([root], output=tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "p"]


def test_a_disk_that_is_full_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "p", FILES)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(UsageError, match="No space left on device; nothing was written"):
        migrate_paths([root], output=tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


def test_a_source_that_changes_meanwhile_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "p", FILES)
    really = shutil.copytree

    def meanwhile(*arguments: object, **options: object) -> object:
        (root / "b.py").write_text("# mine\n")
        return really(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(shutil, "copytree", meanwhile)
    with pytest.raises(UsageError, match=r"b\.py has changed meanwhile"):
        migrate_paths([root], output=tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("path", ["n" * 300, "n/" * 3000, "a.py/x"])
def test_a_path_that_can_not_be_looked_at_is_one_line(tmp_path: Path, path: str) -> None:
    write_tree(tmp_path, {"a.py": GPU})
    found = cli(path, "--target", "torchax", "--check", cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.decode().count("\n") == 1 and b"Traceback" not in found.stderr
