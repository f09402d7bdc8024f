"""Tests that need a target's packages are collected only where TPU_MIGRATE_TARGET names one.

`test_target_*` concern the target of the environment; `test_torch_*` need the torch of any.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from target import TARGET

from .support import Checkout, fake_interpreter

collect_ignore_glob = [] if TARGET else ["test_target_*.py", "test_torch_*.py"]


@pytest.fixture(scope="package", autouse=True)
def compiled_as_for_users() -> Iterator[None]:
    """Without the flags of tests/run.py: LLVM decides how numbers are rounded, and with it on which
    side of 0 the input of a ReLU is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)
        yield


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
