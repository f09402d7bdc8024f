"""Told: what a run that only looks has printed, for the next one that would find the same.

The same command in the same folder, by the same tool, prints the same bytes as long as nothing that
it looked at has changed. To ask each file for its state takes a hundredth of looking at it, so the
whole run is what is kept: no tree, no fact and no report is made to say it once more.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from migrator.cache import store
from migrator.cache.tool import fingerprint
from migrator.files.places import digest
from migrator.files.witness import Witness, watching

Said = list[tuple[bool, bytes]]  # whether to standard error, and what
_MOST = 2**24  # bytes of output; who prints more waits for a terminal anyway
# What rich, click and this tool ask of the environment for what they print.
_VARIABLES = (
    "COLORTERM", "COLUMNS", "FORCE_COLOR", "GITHUB_WORKSPACE", "LANG", "LC_ALL", "LC_CTYPE",
    "LINES", "NO_COLOR", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONUTF8", "TERM", "TERM_PROGRAM",
    "TTY_COMPATIBLE", "TTY_INTERACTIVE",
)  # fmt: skip


def told(asked: object, paths: tuple[str, ...], run: Callable[[], int]) -> int:
    """The exit code of a run that only looks, which is told again if it would find the same.

    Args:
        asked: all that the command line says.
        paths: the paths in it.
    """
    key = _key(asked, paths)
    if key is None:
        return run()
    code = _again(key)
    if code is not None:
        return code
    with watching() as witness, _listening() as said:
        code = run()
    if code in (0, 1) and witness.is_whole and sum(len(part) for _, part in said) <= _MOST:
        _keep(key, code, said, witness.without_what_follows())
    return code


def _key(asked: object, paths: tuple[str, ...]) -> str | None:
    streams = (sys.stdout, sys.stderr)
    if not all(hasattr(stream, "buffer") for stream in streams):
        return None  # of a program that has put something else there
    context = click.get_current_context(silent=True)
    parts = (
        fingerprint(), repr(asked), Path.cwd(), [os.path.realpath(path) for path in paths],
        os.geteuid() if hasattr(os, "geteuid") else None,
        context.color if context is not None else None,
        [(stream.isatty(), stream.encoding, _size(stream)) for stream in streams],
        [os.environ.get(name) for name in _VARIABLES],
    )  # fmt: skip
    return digest(repr(parts).encode())


def _size(stream: TextIO) -> os.terminal_size | None:
    return os.get_terminal_size(stream.fileno()) if stream.isatty() else None


def _again(key: str) -> int | None:
    """Say what was said, if all is as it was."""
    entry = store.get(key)
    if entry is None:
        return None
    try:
        code, said, seen, answers = _Plain(io.BytesIO(entry)).load()
    except Exception:  # of an older version, or none of ours
        return None
    before, witness = dict(seen), Witness(seen, answers)
    if not witness.still_holds():
        return None
    if seen != before:  # what only looked changed is recognised by its state from now on
        _keep(key, code, said, witness)
    for is_error, part in said:
        stream = sys.stderr if is_error else sys.stdout
        stream.buffer.write(part)
        stream.buffer.flush()
    return int(code)


def _keep(key: str, code: int, said: Said, witness: Witness) -> None:
    store.put(key, pickle.dumps((code, said, witness.seen, witness.answers), 5))


class _Plain(pickle.Unpickler):
    """Takes text, bytes, numbers and what holds them: to load an entry runs nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


# ---- listening -----------------------------------------------------------------------------------


@contextmanager
def _listening() -> Iterator[Said]:
    """What is printed in the meantime; it is printed all the same."""
    said: Said = []
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Heard(sys.stdout, said), _Heard(sys.stderr, said, is_error=True)
    try:
        yield said
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


class _Heard(io.TextIOWrapper):
    """A standard stream whose bytes are kept, too."""

    def __init__(self, stream: TextIO, said: Said, is_error: bool = False) -> None:
        self.unheard = stream  # for what is of this run alone: its progress
        super().__init__(
            _Ear(stream.buffer, said, is_error),  # type: ignore[arg-type]
            encoding=stream.encoding, errors=stream.errors, write_through=True,
        )  # fmt: skip

    def __del__(self) -> None:
        """The stream below goes on."""


class _Ear(io.BufferedIOBase):
    def __init__(self, stream: Any, said: Said, is_error: bool) -> None:
        self._stream, self._said, self._is_error = stream, said, is_error

    def write(self, content: Any) -> int:
        self._said.append((self._is_error, bytes(content)))
        return int(self._stream.write(content))

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return bool(self._stream.isatty())

    def fileno(self) -> int:
        return int(self._stream.fileno())
