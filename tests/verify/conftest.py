"""Tests that need a target's packages are collected only where TPU_MIGRATE_TARGET names one.

`test_target_*` concern the target of the environment; `test_torch_*` need the torch of any.
"""

import os
from pathlib import Path

import pytest

from .support import Checkout, fake_interpreter

collect_ignore_glob = (
    [] if os.environ.get("TPU_MIGRATE_TARGET") else ["test_target_*.py", "test_torch_*.py"]
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout with one tiny app, which is the current folder."""
    made = Checkout(tmp_path / "checkout")
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that looks as if it had torchax, without a byte of it."""
    return fake_interpreter(tmp_path / "fake")
