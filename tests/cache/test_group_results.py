"""After an edit, only the group of files around it is migrated again."""

from __future__ import annotations

import json
import marshal
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import cli, write_tree

from migrator.cache import entry_store
from migrator.cache.known_groups import GROUPS
from migrator.files import states, witness
from migrator.files.reading import read_file
from migrator.files.witness import watching
from tests.cache.looking import EDITS, GPU, HEARING, TREE, look

AS_JSON = (".", "--target", "torchax", "--check", "--format", "json", "--jobs", "1")


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
    (entry,) = entry_store.folder().glob(f"{GROUPS}-*")
    run, (tool, entries) = marshal.loads(entry.read_bytes()[4:])
    spoilt = {key: (pickle.dumps(Stolen()), *parts) for key, (_, *parts) in entries.items()}
    entry_store.store_entry(GROUPS, run, (tool, spoilt))
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


def test_a_link_that_leads_elsewhere(several: Path) -> None:
    write_tree(several, {"versions/one.py": GPU, "versions/two.py": GPU.replace("f(x)", "g(x)")})
    link = several / "tools" / "current.py"
    link.symlink_to("../versions/one.py")
    look(several)
    link.unlink()
    link.symlink_to("../versions/two.py")
    assert look(several) == look(several, "--no-cache")


def test_an_edit_within_one_tick_of_the_clock_is_seen(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system's clock may stand still between a run and an edit."""
    now = time.time_ns()
    for module in (witness, states):
        monkeypatch.setattr(module, "of_status", lambda status: (status.st_size, now, now, 1))
    before = look(several, "--jobs", "1")
    (several / "apart/one.py").write_text(GPU.replace(".cuda()", ".half()"))
    assert look(several, "--jobs", "1") != before
    assert look(several, "--jobs", "1") == look(several, "--jobs", "1", "--no-cache")


def test_what_changes_while_a_run_goes_on_is_not_kept(tmp_path: Path) -> None:
    file = write_tree(tmp_path, {"a.py": "1\n"}) / "a.py"
    with watching() as seen:
        read_file(file)
        file.write_text("2\n")
        read_file(file)
    assert not seen.is_whole


@pytest.mark.parametrize("how", [("--no-cache",), ("--hook",), ("--diff-base", "HEAD")])
def test_what_asks_git_or_wants_no_cache_looks_itself(
    how: tuple[str, ...], several: Path, migrated: list[str]
) -> None:
    (several / "train.py").write_text(TREE["train.py"] + "torch.ones(2).cuda()\n")
    for _ in range(2):
        migrated.clear()
        cli("train.py", "--target", "torchax", "--check", "--jobs", "1", *how, cwd=several)
        assert "train.py" in migrated
