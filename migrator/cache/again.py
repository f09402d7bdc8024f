"""Again: a run that would find the same as an earlier one says the same, before anything is loaded.

Ten thousand files are asked for their state in the time that the command line's libraries take to
be imported. What may be kept, and how, is known in `told`.
"""

from __future__ import annotations

import os
import sys

from migrator import TYPE_CHECKING, __version__
from migrator.cache.entries import TOLD, load
from migrator.files.states import changed, still_true

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

# What rich, click and this tool ask of the environment for what they print.
_VARIABLES = (
    "COLORTERM", "COLUMNS", "FORCE_COLOR", "GITHUB_WORKSPACE", "LANG", "LC_ALL", "LC_CTYPE",
    "LINES", "NO_COLOR", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONUTF8", "TERM", "TERM_PROGRAM",
    "TTY_COMPATIBLE", "TTY_INTERACTIVE", "_TPU_MIGRATE_COMPLETE",
)  # fmt: skip
_EXPANDED = frozenset("*?[~$%")  # click makes paths of these on Windows


def run_of(arguments: Sequence[str]) -> str | None:
    """What stands for a run: all that what it prints rests on, beside files. None: nothing can."""
    streams = (sys.stdout, sys.stderr)
    if not all(hasattr(stream, "buffer") for stream in streams):
        return None  # of a program that has put something else there
    if os.name == "nt" and not _EXPANDED.isdisjoint("".join(arguments)):
        return None
    try:
        parts = (
            __version__, __file__, sys.version, sys.platform,
            os.path.realpath(sys.executable), sys.path, os.getcwd(), list(arguments),
            [os.path.realpath(word) for word in arguments],
            os.geteuid() if hasattr(os, "geteuid") else None,
            [(stream.isatty(), stream.encoding, _size(stream)) for stream in streams],
            [os.environ.get(name) for name in _VARIABLES],
        )  # fmt: skip
    except OSError:  # the working folder is gone
        return None
    return repr(parts)


def _size(stream: TextIO) -> os.terminal_size | None:
    return os.get_terminal_size(stream.fileno()) if stream.isatty() else None


def said_again(run: str) -> int | None:
    """Say what the run has said; its exit code. None where it has to be done."""
    try:
        code, said, tool, seen, answers, _ = load(TOLD, run)
        is_same = not changed(tool[0]) and still_true(tool[1]) and still_true(answers)
    except (KeyError, TypeError, ValueError):  # nothing is kept, or by an older version
        return None
    if not is_same:
        return None
    if different := changed(seen):
        from migrator.cache.told import holds_the_same

        if not holds_the_same(run, different):
            return None
    try:
        for is_error, part in said:
            stream = sys.stderr if is_error else sys.stdout
            stream.buffer.write(part)
            stream.buffer.flush()
    except BrokenPipeError:
        return 141
    return int(code)
