"""What tests of rule packages share."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from helpers import Install, have_installed, write_tree

from migrator.registry import registry, vocabulary


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package where installed ones are found, and its entry point beside it."""
    folder = tmp_path / "installed"
    known = set(sys.modules)

    def put(files: Mapping[str, str], value: str) -> None:
        meta = {
            "own_rules-1.0.dist-info/METADATA": "Name: own-rules\nVersion: 1.0\n",
            "own_rules-1.0.dist-info/entry_points.txt": f"[tpu_migrate.rules]\nown = {value}\n",
        }
        write_tree(folder, {**files, **meta})
        have_installed(monkeypatch, folder)
        registry.cache_clear()
        vocabulary.cache_clear()

    yield put
    monkeypatch.undo()
    registry.cache_clear()
    vocabulary.cache_clear()
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
