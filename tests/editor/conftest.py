"""What the tests of editors share."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import write_tree


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tree(tmp_path, {"pyproject.toml": '[project]\nname = "x"\nversion = "1"\n', ".git/x": ""})
    return tmp_path
