"""Watch whose code runs: the program's own, not that of libraries."""

import _lsprof
import contextlib
import gc
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import jax
import numpy
import torch
import torchax
from jax._src import monitoring

from ..profiling.reads_in_steps import Place

# Files whose code isn't part of a program, by prefix. Tools that watch a program from inside
# its process, like `tpu-migrate verify`, add their folder.
LIBRARIES: tuple[str, ...] = (
    *(str(Path(str(m.__file__)).parent) + os.sep for m in (torch, torchax, jax, numpy)),
    # torch's, for symbolic sizes; it imports them when a call first needs them.
    *(str(Path(torch.__file__).parents[1] / name) + os.sep for name in ("sympy", "mpmath")),
    str(Path(__file__).parents[1]) + os.sep,  # this package
    "<frozen",
)
PACKAGES = ("torch", "torchax", "jax", "jaxlib", "numpy", __name__.partition(".")[0])
_STANDARD = sysconfig.get_path("stdlib") + os.sep


def is_library(filename: str) -> bool:
    """Whether code in this file belongs to torch, JAX or Python."""
    if filename.startswith(LIBRARIES):
        return True
    return filename.startswith(_STANDARD) and "-packages" not in filename


def is_generated(variables: dict[str, Any]) -> bool:
    """Whether code with these globals is a library's: a dataclass's methods have no file."""
    return variables.get("__name__", "").partition(".")[0] in PACKAGES


def line_of(error: BaseException) -> str:
    """The innermost line of the program's own that an error comes from; "" if there is none."""
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if not is_library(file) and not is_generated(frame.f_globals):
            line = linecache.getline(file, number, frame.f_globals).strip()
            return f"{Path(file).name}:{number}: {line}"
    return ""


_MOST_FILES = 4096
_libraries: dict[str, bool] = {}  # by file: the hash of code takes longer than all else here


def caller() -> Place | None:
    """Where the program's own code is now."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        skipped = _libraries.get(file)
        if skipped is None:
            if len(_libraries) > _MOST_FILES:
                _libraries.clear()
            skipped = _libraries[file] = is_library(file)
        if not skipped:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    return None


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Stop Python's garbage collector: the code it calls isn't part of what runs."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CodeWatch:
    """Records which code runs, and which functions have closure variables."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, dict[str, Any]] = {}  # the user's, with their globals
        self.functions: list[FunctionType] = []  # with closure variables
        self.owner: Any = None  # of a method
        self.is_blind = False  # because a profiler of the user's is active
        self._seen: set[CodeType] = set()

    @contextlib.contextmanager
    def running(self, watching: bool = True) -> Iterator[None]:
        """Record what runs, with Python's profiler in C: one in Python takes ten times as long."""
        self.is_blind = False
        if not watching:
            yield
            return
        with without_collector():
            profiler = _lsprof.Profiler(builtins=False, subcalls=False)
            self.is_blind = not _enable(profiler)
            try:
                yield
            finally:
                if not self.is_blind:
                    profiler.disable()
                    ran = {e.code for e in profiler.getstats() if isinstance(e.code, CodeType)}
                    ran -= _told_by_jax() | self._seen
                    self.learn({code for code in ran if not is_library(code.co_filename)})
                    self._seen |= ran

    def learn(self, codes: set[CodeType]) -> None:
        """Record the program's own code that ran."""
        codes -= self._seen
        self._seen |= codes
        if not codes:
            return
        functions = [f for f in gc.get_referrers(*codes) if isinstance(f, FunctionType)]
        # Functions that others among them create are created anew in each call.
        inner = {c for code in codes for c in code.co_consts if isinstance(c, CodeType)}
        for function in functions:
            if is_generated(function.__globals__):
                continue
            for code in _with_inner(function.__code__):
                self.codes[code] = function.__globals__
            if function.__closure__ and function.__code__ not in inner:
                self.functions.append(function)


def _told_by_jax() -> set[CodeType]:
    """The code of listeners to JAX's events: it isn't part of what runs."""
    listeners = [
        *monitoring.get_event_listeners(), *monitoring.get_event_duration_listeners(),
        *monitoring.get_event_time_span_listeners(), *monitoring.get_scalar_listeners(),
    ]  # fmt: skip
    return {listener.__code__ for listener in listeners if isinstance(listener, FunctionType)}


def _enable(profiler: Any) -> bool:
    if sys.getprofile() is not None:
        return False
    try:
        profiler.enable()
    except ValueError:  # since Python 3.12
        return False
    return True


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
