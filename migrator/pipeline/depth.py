"""Room for deeply nested code: trees are walked by recursion."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

DEEP = 4000  # calls in each other that a migration may take


@contextmanager
def room_for_depth() -> Iterator[None]:
    """An `elif` is one level deeper than the `if` before it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
