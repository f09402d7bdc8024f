"""Assertions about tensors: in a model, `assert (boxes >= 0).all()` divides no program.

The condition is computed with what is recorded, and assumed to hold until then. If it doesn't, an
AssertionError names its line before any value that was computed with it is read, printed or saved.
Where the program may catch an error, the condition is read at once.
"""

import atexit
import dis
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

import torch

from ..compilation.program_code import is_library
from ..profiling.reads_in_steps import Place, line_at
from .lazy_arrays import Array, LazyArray, computed

_RAISES = ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT")  # the latter since Python 3.14
_NOTHING = ("CACHE", "NOP", "NOT_TAKEN")
_PACKAGES = "-packages"  # folders of what is installed
_MODEL = "_call_impl"  # of torch.nn.Module

Assumption = tuple[bool, Place]  # what a condition has to be, and where it is read
_pending: list[tuple[Array, Assumption]] = []
# Each trace that is under way, with the tensors of its conditions.
_traced: list[tuple[Any, list[tuple[Any, Assumption]]]] = []


def assumed(tensor: Any, array: Array) -> bool | None:
    """What a condition that is read here is assumed to be; None if it has to be read."""
    if tensor.dtype is not torch.bool:
        return None
    is_traced = bool(_traced) and getattr(array, "_trace", None) is _traced[-1][0]
    if not is_traced and not (type(array) is LazyArray and array.value is None):
        return None
    found = _assertion(sys._getframe(1))
    if found is None:
        return None
    if is_traced:
        _traced[-1][1].append((tensor, found))
    else:
        _pending.append((array, found))
    return found[0]


@contextmanager
def collected(trace: Any) -> Iterator[list[tuple[Any, Assumption]]]:
    """The conditions of a trace of JAX's."""
    found: list[tuple[Any, Assumption]] = []
    _traced.append((trace, found))
    try:
        yield found
    finally:
        _traced.pop()


def later(arrays: list[Array], assumptions: list[Assumption]) -> None:
    """The conditions of a program that was called are checked when it is computed."""
    _pending.extend(zip(arrays, assumptions, strict=True))


def check() -> None:
    """Raise an error for the first condition that doesn't hold; all are computed."""
    conditions = _pending[:]
    _pending.clear()
    for array, (value, place) in conditions:
        if bool(computed(array)) is not value:
            raise AssertionError(f"{line_at(*place)} (found when its step was computed)")


class _Unflushed:
    """Standard error whose last flush fails, after which Python's exit status is 120.

    An error of an exit handler alone leaves it 0. `os._exit` would lose what open files still hold.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        self._stream.flush()
        sys._getframe(1)  # the last one has no caller in Python, which is a ValueError


@atexit.register
def fails_at_end() -> bool:
    """Whether a condition that nobody has waited for doesn't hold at the program's end.

    Its error is shown as one that the program didn't catch, and the exit status is no success.
    """
    try:
        check()
    except Exception as error:
        sys.excepthook(type(error), error, None)
        if sys.stderr is not None:
            sys.stderr = _Unflushed(sys.stderr)
        return True
    return False


def _assertion(frame: FrameType | None) -> Assumption | None:
    """What the program's own code asserts just now, and where; None if it does something else, if
    that is in no model, or if it may catch the error."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    value = None if frame is None else _values(frame.f_code).get(frame.f_lasti)
    if frame is None or value is None:
        return None
    place, is_in_model = (frame.f_code, frame.f_lasti), False
    while frame is not None:
        code, now = frame.f_code, frame.f_lasti
        if is_library(code.co_filename):
            is_in_model = is_in_model or code.co_name == _MODEL
        elif _PACKAGES not in code.co_filename:  # those let errors through
            if any(start <= now < end for start, end in _handled(code)):
                return None
        if code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            break  # what starts the program is not part of it
        frame = frame.f_back
    return (value, place) if is_in_model else None


@cache
def _values(code: CodeType) -> dict[int, bool]:
    """Of each instruction that reads the condition of an assertion: what that has to be."""
    found: dict[int, bool] = {}
    instructions = [i for i in dis.get_instructions(code) if i.opname not in _NOTHING]
    for before, jump, after in zip(instructions, instructions[1:], instructions[2:], strict=False):
        raises = after.opname in _RAISES and after.argrepr in ("", "AssertionError")
        if raises and jump.opname.startswith("POP_JUMP") and jump.opname.endswith("IF_TRUE"):
            found[jump.offset] = True
        elif raises and jump.opname.startswith("POP_JUMP") and jump.opname.endswith("IF_FALSE"):
            found[jump.offset] = False
        if before.opname == "TO_BOOL" and jump.offset in found:  # since Python 3.13
            found[before.offset] = found[jump.offset]
    return found


@cache
def _handled(code: CodeType) -> list[tuple[int, int]]:
    """Where errors may be caught: in a `try`, not in a `with`, nor by what ends a generator."""
    names = {each.offset: each.opname for each in dis.get_instructions(code)}
    offsets = sorted(names)
    following = {a: names[b] for a, b in itertools.pairwise(offsets)}

    def lets_through(target: int) -> bool:
        of_generator = names[target] == "CALL_INTRINSIC_1"  # since Python 3.12
        return of_generator or following.get(target) == "WITH_EXCEPT_START"

    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return [(entry.start, entry.end) for entry in entries if not lets_through(entry.target)]
