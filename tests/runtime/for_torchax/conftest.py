"""What the tests of models whose gradients are programs share."""

import warnings
from collections.abc import Iterator

import pytest
from tpu_runtime.compilation.partial_compilation import _told
from tpu_runtime.lazy import lazy_graph, lazy_programs


@pytest.fixture
def no_warnings() -> Iterator[None]:
    _told.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.fixture
def no_programs() -> Iterator[None]:
    """Nothing is recorded, and no program is known."""
    lazy_graph.run()
    lazy_programs._programs.clear()
    yield
    lazy_graph.run()
