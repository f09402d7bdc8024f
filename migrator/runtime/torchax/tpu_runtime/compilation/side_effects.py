"""Detect what a program can't repeat: printing, and drawing numbers on the CPU."""

import builtins
import contextlib
import logging
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..dispatch.calls import natively
from .compile_state import NotCompilable

_LIBRARIES = ("jax", "torch", "torchax")


class Printed(Exception):
    """Ends a trace."""


class _Stream:
    """Standard output or error, on which only warnings are written."""

    def __init__(self, stream: Any, printed: list[str]) -> None:
        self._stream, self._printed = stream, printed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        if sys._getframe(1).f_globals.get("__name__") == "warnings":
            return self._stream.write(text)
        self._printed.append("it prints")
        raise Printed


@contextlib.contextmanager
def silent() -> Iterator[list[str]]:
    """Raise Printed if something is printed or logged; the list tells if it was caught there."""
    printed: list[str] = []
    handle, show = logging.Logger.callHandlers, builtins.print
    out, err = sys.stdout, sys.stderr

    def refuse_record(self: logging.Logger, record: logging.LogRecord) -> None:
        if record.name.startswith(_LIBRARIES):
            return handle(self, record)
        printed.append("it prints to a log")
        raise Printed

    def refuse(*args: Any, **kwargs: Any) -> None:
        printed.append("it prints")
        raise Printed

    logging.Logger.callHandlers = refuse_record  # type: ignore[method-assign]
    builtins.print = refuse
    sys.stdout, sys.stderr = _Stream(out, printed), _Stream(err, printed)
    try:
        yield printed
    except Printed:
        pass
    finally:
        logging.Logger.callHandlers = handle  # type: ignore[method-assign]
        builtins.print = show
        sys.stdout, sys.stderr = out, err


@contextlib.contextmanager
def cpu_draws_undone(refusal: Exception) -> Iterator[None]:
    """Undo numbers that torch draws on the CPU in a trace, and raise ``refusal`` for them."""
    before = _generator_state()
    try:
        yield
        with natively():
            if not torch.equal(before, _generator_state()):
                raise refusal
    finally:
        torch.default_generator.set_state(before)


def _generator_state() -> torch.Tensor:
    with natively():
        return torch.default_generator.get_state()


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Undo, and refuse, random numbers that Python, NumPy or torch on the CPU draw in a trace."""
    before = random.getstate(), np.random.get_state(legacy=False)
    refusal = NotCompilable("it draws random numbers on the CPU; draw them outside")
    try:
        with cpu_draws_undone(refusal):
            yield
            after = random.getstate(), np.random.get_state(legacy=False)
            if before[0] != after[0] or repr(before[1]) != repr(after[1]):
                raise NotCompilable("it draws random numbers in Python; draw them outside")
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
