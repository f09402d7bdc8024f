"""What the tests of editors share."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import write_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tree(tmp_path, {"pyproject.toml": '[project]\nname = "x"\nversion = "1"\n', ".git/x": ""})
    return tmp_path
