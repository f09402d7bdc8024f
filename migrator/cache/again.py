"""Again: a run that would find the same as an earlier one prints its output, before anything loads.

Checking the state of ten thousand files takes as long as importing the command line's libraries.
`told` knows what may be stored, and how.
"""

from __future__ import annotations

import os
import sys
from stat import S_IFMT

from migrator import TYPE_CHECKING, __version__
from migrator.cache.entries import TOLD, load
from migrator.files.states import changed, still_true

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

# Environment variables that affect what rich, click and this tool print.
_VARIABLES = (
    "COLORTERM", "COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "LANG", "LC_ALL",
    "LC_CTYPE", "LINES", "NO_COLOR", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONUTF8", "TERM",
    "TERM_PROGRAM", "TF_BUILD", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "_TPU_MIGRATE_COMPLETE",
)  # fmt: skip
_EXPANDED = frozenset("*?[~$%")  # click expands these to paths on Windows


def run_of(arguments: Sequence[str]) -> str | None:
    """The key of a run: all that its output depends on, besides files. None: it can't be stored."""
    streams = (sys.stdout, sys.stderr)
    if not all(hasattr(stream, "buffer") for stream in streams):
        return None  # the program has replaced a stream
    if os.name == "nt" and not _EXPANDED.isdisjoint("".join(arguments)):
        return None
    try:
        parts = (
            __version__, __file__, sys.version, sys.platform,
            os.path.realpath(sys.executable), sys.path, os.getcwd(), list(arguments),
            [os.path.realpath(word) for word in arguments],
            os.geteuid() if hasattr(os, "geteuid") else None,
            [(each.isatty(), each.encoding, _size(each), _kind(each)) for each in streams],
            [os.environ.get(name) for name in _VARIABLES],
        )  # fmt: skip
    except OSError:  # the working folder no longer exists
        return None
    return repr(parts)


def _size(stream: TextIO) -> os.terminal_size | None:
    return os.get_terminal_size(stream.fileno()) if stream.isatty() else None


def _kind(stream: TextIO) -> int | None:
    """Of a file, a pipe or a terminal."""
    try:
        return S_IFMT(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return None


def said_again(run: str) -> int | None:
    """Print a stored run's output; returns its exit code. None if the run has to be done."""
    try:
        code, said, tool, seen, answers, _ = load(TOLD, run)
        is_same = not changed(tool[0]) and still_true(tool[1]) and still_true(answers)
    except (KeyError, TypeError, ValueError):  # nothing is stored, or by an older version
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
