"""A project that has settled, and which of its files are migrated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from helpers import committed, write_tree

from migrator.files import witness
from migrator.runs import group, pool
from migrator.runs.worker import Worker
from tests.cache.looking import GPU, RANKS, TREE, aged

MORE = {
    "apart/one.py": GPU, "apart/README.md": "python one.py\n", "ranks/run.py": RANKS,
    "ranks/helper.py": GPU, "ranks/requirements.txt": "torch\nnvidia-cublas-cu12\n",
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files settle soon: no test waits for the slowest clocks of file systems."""
    monkeypatch.setattr(witness, "_TICK", 10**8)


@pytest.fixture
def tree(tmp_path: Path, short_tick: None) -> Path:
    root = committed(tmp_path / "project", TREE)
    aged(root)
    return root


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
