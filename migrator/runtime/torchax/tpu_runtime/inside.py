"""Whether a compiled function runs, and how its trace ends where it cannot be compiled."""

import contextlib
import threading
from collections.abc import Iterator

_inside = threading.local()  # .running: in a function that is compiled, or its trace


def is_inside() -> bool:
    """Whether a function runs that is compiled, or is being traced: all in it is part of it."""
    return getattr(_inside, "running", False)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Run a function that is compiled."""
    before, _inside.running = is_inside(), True
    try:
        yield
    finally:
        _inside.running = before


class NotCompilable(Exception):
    """Why a function has to run as it is."""


class FirstTime(Exception):
    """A module or an optimizer takes part for the first time, or makes state: run it as it is."""


class Suspect(BaseException):
    """Ends a trace before code begins that may do more; the program does not catch it as its own
    error."""
