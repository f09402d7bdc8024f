"""Witness: what a run has read from the disk, so that a later one can tell if it is the same.

A run is a function of what it reads: files, the names in folders, and whether some paths exist.
All of that is recorded where it is read (`reading`, `discover`), whatever asks for it. The state of
a file is recorded before its content is read, so that a change in between is noticed later.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrator.files.states import QUESTIONS, State, of_status, state_of

if TYPE_CHECKING:
    from migrator.files.states import Answer

NONE = b""  # the content of an unreadable file
_DOUBTFUL = (-1, -1, -1, -1)  # matches no state: the content decides
# A file may change again within the same timestamp: clocks of file systems tick every few
# milliseconds, some every two seconds. (Git calls such files racy.)
_TICK = 2 * 10**9
# Queries answered by a file's state; for a missing file, by the names in its folder.
_FOLLOWING = ("exists", "isdir", "isfile", "lexists")

Path = str | os.PathLike[str]


@dataclass
class Witness:
    """What was read, by absolute path."""

    seen: dict[str, tuple[State, bytes]] = field(default_factory=dict)  # with the content
    answers: dict[tuple[str, str], object] = field(default_factory=dict)
    is_whole: bool = True  # no query was made that can't be recorded
    listed: dict[str, frozenset[str]] = field(default_factory=dict)  # the names in folders

    def saw(self, path: str, state: State, content: bytes) -> None:
        known = self.seen.setdefault(path, (state, content))
        if known[1] != content:  # it has changed during the run
            self.is_whole = False

    def answered(self, question: str, path: str, answer: object) -> None:
        if self.answers.setdefault((question, path), answer) != answer:
            self.is_whole = False

    def without_what_follows(self) -> Witness:
        """The same, without what follows from a file's state or the names in a folder."""
        seen = {
            path: found
            for path, found in self.seen.items()
            if found[0] is not None or not self._is_unlisted(path)
        }
        answers = {
            (question, path): answer
            for (question, path), answer in self.answers.items()
            if question not in _FOLLOWING or not self._follows(path, answer)
        }
        return Witness(seen, answers, self.is_whole)

    def _follows(self, path: str, answer: object) -> bool:
        is_missing = not answer and self._is_unlisted(path)
        return is_missing or self.seen.get(path, (None,))[0] is not None

    def _is_unlisted(self, path: str) -> bool:
        folder, name = os.path.split(path)
        return name not in self.listed.get(folder, {name})

    def parts(self) -> tuple[dict[str, State], list[Answer], bytes]:
        """Everything, to be stored; contents are rarely needed, so they are packed separately."""
        states = {path: state for path, (state, _) in self.seen.items()}
        answers = [(question, path, answer) for (question, path), answer in self.answers.items()]
        return states, answers, marshal.dumps([content for _, content in self.seen.values()])

    @classmethod
    def of(cls, states: dict[str, State], answers: list[Answer], contents: bytes) -> Witness:
        """What was stored as `parts`."""
        known = zip(states.values(), marshal.loads(contents), strict=True)
        seen = dict(zip(states, known, strict=True))
        return cls(seen, {(question, path): answer for question, path, answer in answers})

    def drain(self) -> Witness:
        """What was read since the last call; for a process that reports to another."""
        found = Witness(self.seen, self.answers, self.is_whole)
        self.seen, self.answers = {}, {}
        return found

    def join(self, other: Witness) -> None:
        """Add what another process has read."""
        for path, (state, content) in other.seen.items():
            self.saw(path, state, content)
        for (question, path), answer in other.answers.items():
            self.answered(question, path, answer)
        self.is_whole &= other.is_whole

    def hold_the_same(self, changed: Iterable[str]) -> bool:
        """Whether apparently changed files have the same content; their new state is recorded."""
        for path in changed:
            content = self.seen[path][1]
            now = state_of(path)
            if content == NONE or _content(path) != content:
                return False
            self.seen[path] = (_settled(now), content)
        return True


_watching: Witness | None = None


@contextmanager
def watching() -> Iterator[Witness]:
    """Record what is read from here on."""
    global _watching
    before, _watching = _watching, Witness()
    try:
        yield _watching
    finally:
        _watching = before


def current() -> Witness | None:
    """The current recorder, in a process that others report to."""
    return _watching


# ---- what is looked at ---------------------------------------------------------------------------


def exists(path: Path) -> bool:
    return bool(_ask("exists", path))


def isdir(path: Path) -> bool:
    return bool(_ask("isdir", path))


def isfile(path: Path) -> bool:
    return bool(_ask("isfile", path))


def lexists(path: Path) -> bool:
    return bool(_ask("lexists", path))


def looked_at(path: Path) -> None:
    """Only properties of a file were read that change with its state."""
    if _watching is not None:
        _watching.answered("state", _absolute(path), _settled(state_of(path)))


def leads_to(path: Path) -> None:
    """A link was followed."""
    if _watching is not None:
        _ask("realpath", path)


def names(folder: Path) -> list[str]:
    """The names in a folder. Raises OSError."""
    if _watching is None:
        return os.listdir(folder)
    state = _settled(state_of(folder))
    try:
        found = os.listdir(folder)
    except OSError:
        if isdir(folder):
            _watching.saw(_absolute(folder), state, NONE)
        raise
    _watching.saw(_absolute(folder), state, _of_names(found))
    _watching.listed[_absolute(folder)] = frozenset(found)
    return found


def look_into(folder: Path) -> None:
    """Record the names of a folder that is listed later."""
    if _watching is not None:
        with suppress(OSError):
            names(folder)


def saw_file(path: Path, status: os.stat_result, content: bytes) -> None:
    """A file was read; this was its state before."""
    if _watching is not None:
        _watching.saw(_absolute(path), _settled(of_status(status)), _of_content(content))


def saw_nothing(path: Path) -> None:
    """A file could not be read."""
    if _watching is not None:
        _watching.saw(_absolute(path), _settled(state_of(path)), NONE)


def also_read(other: Witness) -> None:
    """A part of the run, which recorded for itself, has read this."""
    if _watching is not None:
        _watching.join(other)


def asked_others() -> None:
    """Answers from git or another machine can't be recorded."""
    if _watching is not None:
        _watching.is_whole = False


def _ask(question: str, path: Path) -> object:
    answer = QUESTIONS[question](os.fspath(path))
    if _watching is not None:
        _watching.answered(question, _absolute(path), answer)
    return answer


def _absolute(path: Path) -> str:
    """Keeps `..`: after a link it may lead elsewhere."""
    text = os.fspath(path)
    if os.path.isabs(text):
        return text
    return os.getcwd() if text == "." else os.path.join(os.getcwd(), text)


# ---- states and contents -------------------------------------------------------------------------


def _settled(state: State) -> State:
    """The state, unless a further change could leave it the same."""
    if state is not None and max(state[1], state[2]) > time.time_ns() - _TICK:
        return _DOUBTFUL
    return state


def _content(path: str) -> bytes:
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            return _of_names(os.listdir(path))
        if stat.S_ISREG(kind):
            with open(path, "rb") as file:
                return _of_content(file.read())
    except OSError:
        pass
    return NONE


def _of_content(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _of_names(found: Iterable[str]) -> bytes:
    return _of_content(b"\0".join(sorted(map(os.fsencode, found))))
