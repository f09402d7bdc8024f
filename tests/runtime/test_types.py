"""mypy's strict mode on a target's runtime, with what it shares and the runtime that chooses."""

from pathlib import Path

from runtime_types import what_mypy_says
from target import TARGET


def test_mypy(tmp_path: Path) -> None:
    assert what_mypy_says(TARGET, tmp_path) == ""
