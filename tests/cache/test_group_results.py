"""After an edit, only the group of files around it is migrated again."""

from __future__ import annotations

import json
import marshal
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from helpers import cli, write_tree

from migrator.cache import store
from migrator.cache.entries import GROUPS
from migrator.runs import group, pool
from migrator.runs.worker import Worker
from tests.cache.looking import GPU, HEARING, RANKS, aged, look
from tests.cache.test_told import EDITS

MORE = {
    "apart/one.py": GPU, "apart/README.md": "python one.py\n", "ranks/run.py": RANKS,
    "ranks/helper.py": GPU, "ranks/requirements.txt": "torch\nnvidia-cublas-cu12\n",
}  # fmt: skip

AS_JSON = (".", "--target", "torchax", "--check", "--format", "json", "--jobs", "1")


@pytest.fixture
def several(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with several groups, which is divided although it is small."""
    monkeypatch.setattr(pool, "_POOL_BYTES", 0)
    write_tree(tree, MORE)
    aged(tree)
    return tree


@pytest.fixture
def migrated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that this process migrates."""
    found: list[str] = []
    real = group.migrate_group

    def noted(files: Sequence[Path], worker: Worker, tick: Callable[[], object] | None = None):  # type: ignore[no-untyped-def]
        found.extend(path.as_posix() for path in files)
        return real(files, worker, tick)

    monkeypatch.setattr(group, "migrate_group", noted)
    return found


def test_an_edit_concerns_its_group_alone(several: Path, migrated: list[str]) -> None:
    look(several, "--jobs", "1")
    assert {"apart/one.py", "train.py", "lib/model.py"} <= set(migrated)
    migrated.clear()
    (several / "apart/one.py").write_text(GPU + "f(1).cuda()\n")
    after = look(several, "--jobs", "1")
    assert "apart/one.py" in migrated and "train.py" not in migrated
    assert after == look(several, "--jobs", "1", "--no-cache")
    migrated.clear()
    (several / "ranks/helper.py").write_text(GPU + "f(1).cuda()\n")
    look(several, "--jobs", "1")
    assert "ranks/run.py" in migrated  # they are one program
    assert "apart/one.py" not in migrated


def test_other_ways_to_show_it_share_the_results(several: Path, migrated: list[str]) -> None:
    look(several, "--jobs", "1")
    migrated.clear()
    run = cli(*AS_JSON, cwd=several)
    assert not migrated
    alone = cli(*AS_JSON, "--no-cache", cwd=several)
    assert without_time(run.stdout) == without_time(alone.stdout) and migrated


def without_time(printed: bytes) -> object:
    found = json.loads(printed)
    del found["summary"]["seconds"]
    return found


@pytest.mark.parametrize("option", [("--unsafe",), ("--ignore", "MOV"), ("--target", "tf_tpu")])
def test_other_options_have_other_results(
    option: tuple[str, ...], several: Path, migrated: list[str]
) -> None:
    look(several, "--jobs", "1")
    migrated.clear()
    cli(*AS_JSON, *option, cwd=several)
    assert "train.py" in migrated


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_whatever_changes_the_result_is_as_a_run_without_a_cache_has_it(
    edit: Callable[[Path], object], jobs: str, several: Path
) -> None:
    look(several, "--jobs", jobs)
    edit(several)
    assert look(several, "--jobs", jobs) == look(several, "--jobs", jobs, "--no-cache")


def test_a_fresh_checkout_is_known_by_its_contents(several: Path, migrated: list[str]) -> None:
    look(several, "--jobs", "1")
    for path in [*several.rglob("*.py")]:
        shutil.copy(path, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
    (several / "apart/one.py").write_text("")
    migrated.clear()
    assert look(several, "--jobs", "1") == look(several, "--no-cache")
    assert "train.py" not in migrated


def test_a_group_with_a_broken_file_is_not_kept(several: Path, migrated: list[str]) -> None:
    (several / "apart/one.py").write_text("import torch\nx.cuda(\n")
    for _ in range(2):
        migrated.clear()
        assert look(several, "--jobs", "1")[0] == 2
        assert "apart/one.py" in migrated
    assert "train.py" not in migrated


def test_a_file_that_becomes_empty_stays_so(several: Path) -> None:
    (several / "ranks/requirements.txt").write_text("nvidia-cublas-cu12\n")
    first = cli(*AS_JSON, cwd=several)
    again = cli(*AS_JSON, "-v", cwd=several)
    assert without_time(again.stdout) == without_time(first.stdout)


class Stolen:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch stolen",)


def test_an_entry_of_someone_else_runs_nothing(several: Path, migrated: list[str]) -> None:
    first = look(several, "--jobs", "1")
    (entry,) = store.folder().glob(f"{GROUPS}-*")
    run, (tool, entries) = marshal.loads(entry.read_bytes()[4:])
    spoilt = {key: (pickle.dumps(Stolen()), *parts) for key, (_, *parts) in entries.items()}
    store.put(GROUPS, run, (tool, spoilt))
    for told in store.folder().glob("told-*"):
        told.unlink()
    migrated.clear()
    assert look(several, "--jobs", "1") == first and "train.py" in migrated
    assert not (several / "stolen").exists()


_AUDITED = (
    HEARING
    + """
from migrator.runs import group, pool
pool._POOL_BYTES = 0
missing, count = set(), 0
real = group.migrate_group
def migrate_group(*arguments):
    global count
    looked.clear()
    migrated = real(*arguments)
    noted = group.witness.current()
    seen = {os.path.abspath(path) for path in noted.seen}
    seen |= {os.path.abspath(path) for _, path in noted.answers}
    inside = {path for path in looked if path.startswith(os.getcwd()) and "/.git" not in path}
    missing.update(inside - seen - {os.getcwd() + "/<unknown>"})
    count += 1
    return migrated
group.migrate_group = migrate_group
try:
    from migrator.cli import main
    main()
finally:
    json.dump([count, sorted(missing)], open(os.environ["HEARD"], "w"))
"""
)


def test_everything_that_a_group_depends_on_is_noted(several: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard.json"
    command = [sys.executable, "-c", _AUDITED, ".", "--target", "torchax", "--check", "--jobs", "1"]
    environment = {**os.environ, "HEARD": str(heard)}
    subprocess.run(command, cwd=several, env=environment, check=False, capture_output=True)
    count, missing = json.loads(heard.read_text())
    assert missing == [] and count > 3
