"""The folder of results: shared, bounded, and of no matter where it is spoilt."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from migrator.cache import entry_store
from tests.cache.looking import look


def entries() -> list[Path]:
    return sorted(entry_store.folder().iterdir())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-1],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: b"",
        lambda content: b"cos\nsystem\n(S'touch stolen'\ntR.",
    ],
)
def test_what_is_spoilt_is_ignored(
    spoil: Callable[[bytes], bytes], several: Path, migrated: list[str]
) -> None:
    first = look(several, "--jobs", "1")
    (entry,) = entries()
    entry.write_bytes(spoil(entry.read_bytes()))
    migrated.clear()
    assert look(several, "--jobs", "1") == first and "train.py" in migrated
    migrated.clear()
    assert look(several, "--jobs", "1") == first and not migrated  # it was written anew


def test_an_entry_of_someone_else_runs_nothing(several: Path, migrated: list[str]) -> None:
    first = look(several, "--jobs", "1")
    (entry,) = entries()
    spoilt = b"cos\nsystem\n(S'touch stolen'\ntR."
    entry.write_bytes(crc32(spoilt).to_bytes(4, "big") + spoilt)
    migrated.clear()
    assert look(several, "--jobs", "1") == first and "train.py" in migrated
    assert not (several / "stolen").exists()


def test_what_was_not_used_for_long_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        entry_store.store_entry("of_test", f"entry{number}", bytes(1000))
        os.utime(entry_store.file_of("of_test", f"entry{number}"), (number, number))
    assert entry_store.load_entry("of_test", "entry0") == bytes(1000)  # used now
    size = sum(entry.stat().st_size for entry in entries()) // 4
    monkeypatch.setattr(entry_store, "MOST", 3 * size)
    monkeypatch.setattr(entry_store, "_LARGEST", 3 * size)
    entry_store.store_entry("of_test", "entry4", bytes(1000))
    left = [
        number
        for number in range(5)
        if entry_store.load_entry("of_test", f"entry{number}") is not None
    ]
    assert left == [0, 3, 4]


def test_what_has_the_same_checksum_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_store.store_entry("of_test", "one", 1)
    monkeypatch.setattr("migrator.cache.entry_store.crc32", lambda content: 0)
    entry_store.store_entry("of_test", "two", 2)
    assert entry_store.load_entry("of_test", "two") == 2
    assert (
        entry_store.load_entry("of_test", "three") is None
        and entry_store.load_entry("of_test", "one") is None
    )


def test_a_folder_that_can_not_be_written_to_is_no_matter(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "file"))
    first = look(several, "--jobs", "1")
    migrated.clear()
    assert look(several, "--jobs", "1") == first and "train.py" in migrated


def test_runs_at_the_same_time_share_it(tree: Path) -> None:
    command = [sys.executable, "-m", "migrator", str(tree), "--target", "torchax", "--diff"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)
    ]
    printed = {run.communicate()[0] for run in running}
    assert len(printed) == 1 and b"+" in printed.pop()
    assert {run.returncode for run in running} == {1}
