"""Where a run keeps things, and that nobody else can have put anything there."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers import cli, committed, one_line, read_tree

from migrator import migrate_paths
from migrator.errors import UsageError
from migrator.files import user_folders
from migrator.files.journal import Journal
from migrator.runs import pool
from migrator.runs.run import undo
from tests.files.trees import FILES, GPU

LOOK = (".", "--target", "torchax", "--check")
WRITE = (".", "--target", "torchax")


@pytest.fixture(params=["none", "relative"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of all users; the user has no home."""
    for name in ("TPU_MIGRATE_STATE", "TPU_MIGRATE_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no entry for the user, either
    if request.param == "relative":
        monkeypatch.setattr(os.path, "expanduser", lambda path: path.replace("~", "home"))
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_without_a_home_the_folder_is_the_users_alone(shared: Path, tmp_path: Path) -> None:
    root = committed(tmp_path / "p", FILES)
    assert cli(*WRITE, cwd=root).returncode == 0
    [folder] = shared.iterdir()
    assert folder.name == f"tpu-migrate-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert Journal(root.resolve()).last.is_relative_to(folder)
    undo([root])
    assert (root / "b.py").read_text() == GPU


@pytest.mark.parametrize("what", ["of all", "a link", "a file", "another's"])
@pytest.mark.parametrize("how", [LOOK, WRITE, (*LOOK, "--hook"), ("a.py", *LOOK[1:], "--hook")])
def test_a_folder_that_someone_else_made_first_is_refused(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, how: tuple[str, ...]
) -> None:
    root = committed(tmp_path / "p", FILES)
    folder = shared / f"tpu-migrate-{os.geteuid()}"
    if what == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif what == "a file":
        folder.touch()
    else:
        folder.mkdir(mode=0o700)
    if what == "of all":
        folder.chmod(0o777)
    if what == "another's":
        real = os.lstat

        def lstat(path: str) -> os.stat_result:
            found = real(path)
            return os.stat_result((*found[:4], os.geteuid() + 1, *found[5:]))

        monkeypatch.setattr(os, "lstat", lstat)
    before = read_tree(root, runtime=True)
    found = cli(*how, cwd=root)
    assert found.returncode == 2
    one_line(found.stderr, str(folder), "there is no home folder: set HOME, or TPU_MIGRATE_")
    assert read_tree(root, runtime=True) == before


def test_journals_are_for_the_user_alone(tmp_path: Path) -> None:
    """They hold whole files, which may be for the user alone themselves."""
    root = committed(tmp_path, FILES)
    (root / "b.py").chmod(0o600)
    before = os.umask(0o022)
    try:
        migrate_paths([root], write=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE(Journal(root.resolve()).last.stat().st_mode) == 0o600


def test_stored_results_are_for_the_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_POOL_BYTES", 0)  # of a small project nothing is stored
    root = committed(tmp_path, FILES)
    assert cli(*LOOK, cwd=root).returncode == 1
    kept = [path for path in user_folders.cache_folder().rglob("*") if path.is_file()]
    assert kept and {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


# ---- what a journal may ask for ------------------------------------------------------------------


def _plant(journal: Path, changed: Mapping[str, object]) -> None:
    """A journal by which a file of the user would be overwritten, or a folder removed."""
    with zipfile.ZipFile(journal) as archive:
        table = json.loads(archive.read("run.json"))
        contents = {name: archive.read(name) for name in archive.namelist() if name != "run.json"}
    for key, value in changed.items():
        (table if key in table else table["entries"][-1])[key] = value
    with zipfile.ZipFile(journal, "w") as archive:
        archive.writestr("run.json", json.dumps(table))
        for name, content in contents.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("name", ["unfinished.zip", "last.zip"])
@pytest.mark.parametrize("what", ["path", "temporary", "folders", "a link", "root", "git"])
def test_what_lies_outside_of_its_root_is_refused(tmp_path: Path, name: str, what: str) -> None:
    root = committed(tmp_path / "p", FILES)
    migrate_paths([root], write=True)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_bytes((root / "deep" / "c.py").read_bytes())
    (victim / "empty").mkdir()
    journal = Journal(root.resolve())
    planted = {
        "path": {"path": str(root / ".." / "victim" / "precious")},
        "temporary": {"temporary": str(victim / "precious")},
        "folders": {"folders": [str(victim / "empty")]},
        "a link": {"path": str(root / "out" / "precious")},
        "root": {"root": str(tmp_path)},
        "git": {"path": str(root / ".git" / "config")},
    }[what]
    (root / "out").symlink_to(victim)
    _plant(journal.last, planted)
    if name == "unfinished.zip":
        journal.last.rename(journal.unfinished)
    before, theirs = read_tree(root, runtime=True), read_tree(victim)
    with pytest.raises(UsageError, match=r"outside of|is of another"):
        undo([root])
    if name == "unfinished.zip":
        with pytest.raises(UsageError, match=r"outside of|is of another"):
            migrate_paths([root], write=True)
    assert read_tree(root, runtime=True) == before and read_tree(victim) == theirs
    assert (victim / "empty").is_dir()


def test_a_journal_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = committed(tmp_path, FILES)
    migrate_paths([root], write=True)
    before = read_tree(root, runtime=True)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match=r"last\.zip: belongs to another user"):
        undo([root])
    assert read_tree(root, runtime=True) == before
