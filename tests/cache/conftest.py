"""A project that has settled, and a count of the runs that look at it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import committed

from tests.cache.looking import TREE, aged


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that grows with each run that is not just told again."""
    from migrator.runs import run

    runs: list[object] = []
    real = run.migrate_paths

    def counted(*arguments: object, **options: object) -> object:
        runs.append(arguments)
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "migrate_paths", counted)
    return runs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = committed(tmp_path / "project", TREE)
    aged(root)
    return root
