"""Taking a run back, and migrated copies."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import COPY, cli, committed, git, one_line, read_tree, wheel_for, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.files import user_folders
from migrator.files.copying import check_output, copy
from migrator.files.in_place import FileChange
from migrator.runs.run import undo
from tests.files.trees import FILES, GPU, TPU


def test_the_last_run_is_taken_back_byte_for_byte(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    (root / "mixed.py").write_bytes(b"import torch  # \xc3\xa4\r\nx.cuda()\n\r\n")
    before = read_tree(root, runtime=True)
    migrate_paths([root], config=COPY, write=True, allow_dirty=True)
    assert read_tree(root, runtime=True) != before
    done = undo([root / "deep"])  # any path of the project
    assert len(done.restored) == 4 and len(done.removed) > 10 and not done.changed
    assert read_tree(root, runtime=True) == before
    assert not (root / "tpu_runtime").exists()
    with pytest.raises(UsageError, match="no run to undo"):
        undo([root])
    with pytest.raises(UsageError, match=r"mixed\.py is not tracked"):  # it is no output of ours
        migrate_paths([root], write=True)


@pytest.mark.parametrize(
    ("edited", "gone"),
    [("a.py", False), ("b.py", False), ("deep/c.py", True), ("tpu_runtime/device.py", False)],
)
def test_all_of_a_run_is_undone_or_nothing(tmp_path: Path, edited: str, gone: bool) -> None:
    """Else a script that was edited imports a runtime that is no longer there."""
    root = committed(tmp_path, FILES)
    migrate_paths([root], config=COPY, write=True)
    file = root / edited
    if gone:
        file.unlink()
    else:
        file.write_text(f"{file.read_text()}# mine\n")
    before = read_tree(root, runtime=True)
    found = cli("--undo", ".", cwd=root)
    assert found.returncode == 2 and not found.stdout
    one_line(
        found.stderr, str(file), "has changed since the run; nothing was undone", "git restore"
    )
    assert read_tree(root, runtime=True) == before
    if edited in FILES:  # the way on that is named
        git(root, "restore", edited)
        assert cli("--undo", ".", cwd=root).returncode == 0
        assert read_tree(root, runtime=True) == {k: v.encode() for k, v in FILES.items()}


def test_of_several_projects_all_are_undone_or_none(tmp_path: Path) -> None:
    roots = [committed(tmp_path / name, FILES) for name in "pqr"]
    migrate_paths(roots, write=True)
    (roots[1] / "b.py").write_text("# mine\n")
    before = [read_tree(root, runtime=True) for root in roots]
    with pytest.raises(UsageError, match=r"q/b\.py: has changed since"):
        undo(roots)
    git(roots[1], "restore", "b.py")
    never = committed(tmp_path / "z", FILES)
    with pytest.raises(UsageError, match="no run to undo"):
        undo([*roots, never])
    assert read_tree(roots[0], runtime=True) == before[0]
    undo(roots)
    assert not any((root / "vendor").exists() for root in roots)


def test_check_says_what_would_be_undone_and_writes_nothing(tmp_path: Path) -> None:
    root = committed(tmp_path, FILES)
    migrate_paths([root], write=True)
    state = user_folders.state_folder()
    before = read_tree(root, runtime=True), read_tree(state)
    for _ in range(2):
        found = cli("--undo", ".", "--check", cwd=root)
        assert found.returncode == 1
        assert found.stdout.decode().startswith("would restore 3 files\nwould remove ")
        assert (read_tree(root, runtime=True), read_tree(state)) == before
    assert cli("--undo", ".", cwd=root).returncode == 0
    assert (root / "b.py").read_text() == GPU


@pytest.mark.parametrize(
    "more", [["--diff"], ["-o", "out"], ["--format", "json"], ["--strip-todo"], ["--hook"]]
)
def test_what_does_not_go_with_undo_is_refused(tmp_path: Path, more: list[str]) -> None:
    root = committed(tmp_path, FILES)
    migrate_paths([root], write=True)
    before = read_tree(root, runtime=True)
    found = cli("--undo", ".", *more, cwd=root)
    assert found.returncode == 2
    one_line(found.stderr, f"--undo does not go with {more[0]}")
    assert read_tree(root, runtime=True) == before


@pytest.mark.parametrize("how", [[], ["--check"]])
def test_where_nothing_is_to_undo_that_is_said(tmp_path: Path, how: list[str]) -> None:
    root = committed(tmp_path, FILES)
    migrate_paths([root], write=True)
    git(root, "checkout", "-q", ".")
    shutil.rmtree(root / "vendor")
    found = cli("--undo", ".", *how, cwd=root)
    assert found.returncode == 0
    assert found.stdout.decode().startswith("nothing to undo: ")


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
    [journal] = user_folders.state_folder().rglob("last.zip")
    journal.write_bytes(journal.read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"last\.zip: cannot be read as the journal of a run"):
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
    assert user_folders.cache_folder().is_absolute() and user_folders.cache_folder().is_absolute()


def test_folders_of_the_user_are_never_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard has relative ones ignored: they would lie in the project."""
    for kind in ("CACHE", "STATE"):
        monkeypatch.delenv(f"TPU_MIGRATE_{kind}")
        monkeypatch.setenv(f"XDG_{kind}_HOME", "relative")
    monkeypatch.setattr(sys, "platform", "linux")
    for folder in (user_folders.cache_folder(), user_folders.state_folder()):
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


@pytest.mark.parametrize("deep", [True, False])
def test_no_link_of_a_copy_leads_into_the_source(tmp_path: Path, deep: bool) -> None:
    """Else the copy imports the GPU code."""
    root = write_tree(tmp_path / "in", {"lib/m.py": GPU, "a.py": GPU, "sub/b.py": GPU})
    for link, to in {
        "abs.py": root / "a.py", "pkg": root / "lib", "sub/up.py": "../a.py", "whole": root,
        "around.py": "../in/a.py", "sub/around": "../../in/lib", "chain.py": root / "sub/up.py",
        "dangling": root / "nowhere", "here": ".",
    }.items():  # fmt: skip
        (root / link).symlink_to(to)
    out = tmp_path / "x" / "y" / "out" if deep else tmp_path / "out"
    report = migrate_paths([root], output=out)
    assert not report.errors
    links = [path for path in out.rglob("*") if path.is_symlink()]
    assert len(links) == 9
    for link in links:
        assert link.resolve().is_relative_to(out.resolve()), link
    assert (out / "pkg" / "m.py").read_text() == (out / "chain.py").read_text() == TPU
    assert (out / "sub" / "up.py").readlink() == Path("../a.py")
    shutil.rmtree(root)
    assert (out / "sub" / "around" / "m.py").read_text() == TPU


def test_links_out_of_a_copy_lead_where_they_led(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "p" / "in", {"a.py": GPU, "sub/b.py": "", ".git/info/x": "git"})
    write_tree(tmp_path, {"p/data/x.txt": "x", "y.txt": "y", "other/z.py": "z"})
    led = {
        "data": "../data", "sub/y.txt": "../../../y.txt", "z.py": tmp_path / "other" / "z.py",
        "git": ".git/info/x", "nowhere": "../nowhere",
    }  # fmt: skip
    for link, to in led.items():
        (root / link).symlink_to(to)
    (tmp_path / "far").mkdir()
    out = tmp_path / "far" / "q" / "out"
    migrate_paths([root], output=out)
    for link in led:
        assert (out / link).is_symlink()
        assert (out / link).resolve() == (root / link).resolve()
    assert (out / "data" / "x.txt").read_text() == "x"


def test_a_copy_of_one_file(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "import torch\ntorch.cuda.seed()\n", "b.py": GPU})
    migrate_paths([tmp_path / "a.py"], output=tmp_path / "out")
    assert sorted(read_tree(tmp_path / "out")) == ["a.py"]
    assert (tmp_path / "out" / wheel_for("torchax")).is_file()
    assert not (tmp_path / "vendor").exists()


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
    change = FileChange(tmp_path / "p" / "a.py", GPU.encode(), TPU.encode())
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
    with pytest.raises(UsageError, match=r"b\.py has changed in the meantime"):
        migrate_paths([root], output=tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("path", ["n" * 300, "n/" * 3000, "a.py/x"])
def test_a_path_that_can_not_be_looked_at_is_one_line(tmp_path: Path, path: str) -> None:
    write_tree(tmp_path, {"a.py": GPU})
    found = cli(path, "--target", "torchax", "--check", cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.decode().count("\n") == 1 and b"Traceback" not in found.stderr


def test_an_output_that_may_not_be_looked_at_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "p", {"a.py": GPU})
    (tmp_path / "out").mkdir()

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UsageError, match=r"^-o .*out: Permission denied$"):
        check_output(root, tmp_path / "out")
