"""Told: the output of a run that only reads is stored, for a later run that would find the same.

The same command in the same folder, by the same tool, prints the same bytes as long as nothing that
it has read has changed. Checking each file's state takes a hundredth of analysing it, so the
whole output is stored: repeating it needs no tree, no fact and no report (`again`).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from migrator.cache import store
from migrator.cache.entries import TOLD, load
from migrator.cache.tool import as_it_is
from migrator.files.witness import Witness, watching

Said = list[tuple[bool, bytes]]  # whether to standard error, and the text
_MOST = 2**24  # bytes of output; with more, the terminal is the bottleneck anyway


def told(name: str | None, run: Callable[[], int]) -> int:
    """The exit code of a run that only reads; its output is stored.

    Args:
        name: the run's key (`again.run_of`), if it has one.
    """
    if name is None:
        return run()
    tool = as_it_is()
    with watching() as witness, _listening() as said:
        code = run()
    if code in (0, 1) and witness.is_whole and sum(len(part) for _, part in said) <= _MOST:
        _keep(name, (code, said, tool), witness.without_what_follows())
    return code


def _keep(name: str, result: tuple[object, ...], witness: Witness) -> None:
    store.put(TOLD, name, (*result, *witness.parts()))


def holds_the_same(name: str, changed: Sequence[str]) -> bool:
    """Whether apparently changed files have the same content; then their new state is stored."""
    kept = load(TOLD, name)
    if kept is None:
        return False
    *result, states, answers, contents = kept
    witness = Witness.of(states, answers, contents)
    if not witness.hold_the_same(changed):
        return False
    _keep(name, tuple(result), witness)
    return True


# ---- listening -----------------------------------------------------------------------------------


@contextmanager
def _listening() -> Iterator[Said]:
    """Capture what is printed meanwhile; it is still printed."""
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
    """A standard stream whose bytes are captured as well."""

    def __init__(self, stream: TextIO, said: Said, is_error: bool = False) -> None:
        self.unheard = stream  # for output that only concerns this run: its progress
        super().__init__(
            _Ear(stream.buffer, said, is_error),  # type: ignore[arg-type]
            encoding=stream.encoding, errors=stream.errors, write_through=True,
        )  # fmt: skip

    def __del__(self) -> None:
        """The underlying stream stays open."""


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
