"""What the tests of models whose gradients are programs share."""

import warnings
from collections.abc import Iterator

import pytest
from tpu_runtime.parts import _told


@pytest.fixture
def no_warnings() -> Iterator[None]:
    _told.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield
