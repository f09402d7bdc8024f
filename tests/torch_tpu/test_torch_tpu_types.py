"""mypy's strict mode on torch_tpu's runtime, with what it shares and the runtime that chooses."""

from pathlib import Path

from runtime_types import what_mypy_says


def test_mypy(tmp_path: Path) -> None:
    assert what_mypy_says("torch_tpu", tmp_path) == ""
