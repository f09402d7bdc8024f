"""Counts what XLA's CPU client compiles and starts for torch_tpu.

`watch` has to be called before torch is imported. It takes the place of two functions in the
client's table (PJRT_Api), which is what torch_tpu calls for every program.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

_TABLE = 40  # bytes before the first function of PJRT_Api
_COMPILE, _EXECUTE, _LOAD = 20, 55, 56  # numbers of functions there
_COMPILED = 48  # where PJRT_Client_Compile_Args has the new executable
_STARTED = 16  # where PJRT_LoadedExecutable_Execute_Args has the executable
_Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


@dataclass
class Launches:
    """Programs compiled and started so far. ``started``: by the file of the dumped program."""

    dump: Path
    compiled: int = 0
    started: Counter[str] = field(default_factory=Counter)
    _files: dict[int, str] = field(default_factory=dict)  # of executables
    _known: set[str] = field(default_factory=set)
    _kept: list[Any] = field(default_factory=list)  # what C keeps calling

    def of_a_step(self, before: Launches, steps: int) -> dict[str, float]:
        """Starts of each program in a step, since ``before``."""
        return {name: n / steps for name, n in (self.started - before.started).items()}

    def now(self) -> Launches:
        return Launches(self.dump, self.compiled, Counter(self.started))

    def _note_compiled(self, arguments: int) -> None:
        self.compiled += 1
        names = {p.name for p in self.dump.glob("*before_optimizations.txt")} - self._known
        self._known |= names
        if names:
            executable = ctypes.c_void_p.from_address(arguments + _COMPILED).value or 0
            self._files[executable] = sorted(names)[0]

    def _note_started(self, arguments: int) -> None:
        executable = ctypes.c_void_p.from_address(arguments + _STARTED).value or 0
        self.started[self._files.get(executable, "?")] += 1


def watch(dump: Path) -> Launches:
    """Counts from now on. ``dump``: where XLA_FLAGS lets XLA write its programs."""
    library = ctypes.CDLL(str(import_module("lammps_jax_pjrt_cpu").PLUGIN_PATH))
    library.GetPjrtApi.restype = ctypes.c_void_p
    table = library.GetPjrtApi() + _TABLE
    launches = Launches(dump)

    def replace(number: int, note: Any) -> None:
        entry = ctypes.c_void_p.from_address(table + 8 * number)
        original = _Function(entry.value or 0)

        def call(arguments: int) -> int | None:
            error = original(arguments)
            note(arguments)
            return error

        replacement = _Function(call)
        entry.value = ctypes.cast(replacement, ctypes.c_void_p).value
        launches._kept.extend((library, original, replacement))

    replace(_COMPILE, launches._note_compiled)
    replace(_EXECUTE, launches._note_started)
    return launches
