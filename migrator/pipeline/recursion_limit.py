"""A recursion limit for deeply nested code: trees are walked recursively."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

DEEP = 4000  # nested function calls that a migration may need


@contextmanager
def room_for_depth() -> Iterator[None]:
    """An `elif` is one level deeper than the `if` before it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
