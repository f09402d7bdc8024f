"""Whether a compiled function runs, and how its trace ends if it can't be compiled."""

import contextlib
import os
import threading
from collections.abc import Iterator

EAGER = "TPU_RUNTIME_EAGER"  # if set, each operator runs at once and alone, for debugging

_inside = threading.local()  # .running: in a compiled function, or its trace


def is_inside() -> bool:
    """Whether a compiled function runs or is being traced: everything in it is part of it."""
    return getattr(_inside, "running", False)


def is_eager() -> bool:
    """Whether each operator runs at once and alone."""
    return bool(os.environ.get(EAGER))


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Run a compiled function."""
    before, _inside.running = is_inside(), True
    try:
        yield
    finally:
        _inside.running = before


class NotCompilable(Exception):
    """Why a function has to run as it is."""


class FirstTime(Exception):
    """A module or an optimizer takes part for the first time, or creates state: run it as it is."""


class Suspect(BaseException):
    """Ends a trace before code starts that may do more; the program doesn't catch it as its own
    error."""
