"""Witness: what a run has looked at on the disk, so that a later one can tell if it is the same.

A run is a function of what it reads: files, the names in folders, and whether some paths exist.
All of that is noted where it is read (`reading`, `discover`), whatever asks for it. The state of a
file is noted before its content is read, so that a change in between is seen later.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from migrator.files.states import QUESTIONS, State, of_status, state_of

NONE = b""  # stands for the content of what cannot be read
_DOUBTFUL = (-1, -1, -1, -1)  # nothing is in that state: the content decides
# A file may change again at the very time that it has as its last change: clocks of file systems
# tick every few milliseconds, some every two seconds. (Git calls such files racy.)
_TICK = 2 * 10**9
# Answered by the state of what is there; that nothing is there, by the names in the folder.
_FOLLOWING = ("exists", "isdir", "isfile", "lexists")

Path = str | os.PathLike[str]


@dataclass
class Witness:
    """What was seen, by absolute paths."""

    seen: dict[str, tuple[State, bytes]] = field(default_factory=dict)  # with what it holds
    answers: dict[tuple[str, str], object] = field(default_factory=dict)
    is_whole: bool = True  # nothing was asked that cannot be noted
    listed: dict[str, frozenset[str]] = field(default_factory=dict)  # what is in folders

    def saw(self, path: str, state: State, content: bytes) -> None:
        known = self.seen.setdefault(path, (state, content))
        if known[1] != content:  # it has changed while the run went on
            self.is_whole = False

    def answered(self, question: str, path: str, answer: object) -> None:
        if self.answers.setdefault((question, path), answer) != answer:
            self.is_whole = False

    def without_what_follows(self) -> Witness:
        """The same, without what follows from the state of a file or the names in a folder."""
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

    def drain(self) -> Witness:
        """What was seen since the last time; for a process that tells another one."""
        found = Witness(self.seen, self.answers, self.is_whole)
        self.seen, self.answers = {}, {}
        return found

    def join(self, other: Witness) -> None:
        """Take over what another process has seen."""
        for path, (state, content) in other.seen.items():
            self.saw(path, state, content)
        for (question, path), answer in other.answers.items():
            self.answered(question, path, answer)
        self.is_whole &= other.is_whole

    def hold_the_same(self, changed: Iterable[str]) -> bool:
        """Whether what only looks changed is as it was seen; it is noted anew."""
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
    """Note what is looked at from here on."""
    global _watching
    before, _watching = _watching, Witness()
    try:
        yield _watching
    finally:
        _watching = before


def current() -> Witness | None:
    """What notes is taken, in a process that others tell what they have seen."""
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
    """Of a file no more was read than what changes only with its state."""
    if _watching is not None:
        _watching.answered("state", _absolute(path), _settled(state_of(path)))


def leads_to(path: Path) -> None:
    """A link was followed."""
    if _watching is not None:
        _ask("realpath", path)


def names(folder: Path) -> list[str]:
    """What is in a folder. Raises OSError."""
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
    """Note what is in a folder that is listed later."""
    if _watching is not None:
        with suppress(OSError):
            names(folder)


def saw_file(path: Path, status: os.stat_result, content: bytes) -> None:
    """A file was read, which was in this state before."""
    if _watching is not None:
        _watching.saw(_absolute(path), _settled(of_status(status)), _of_content(content))


def saw_nothing(path: Path) -> None:
    """A file could not be read."""
    if _watching is not None:
        _watching.saw(_absolute(path), _settled(state_of(path)), NONE)


def asked_others() -> None:
    """What git knows, and what another machine has seen, is not noted."""
    if _watching is not None:
        _watching.is_whole = False


def _ask(question: str, path: Path) -> object:
    answer = QUESTIONS[question](os.fspath(path))
    if _watching is not None:
        _watching.answered(question, _absolute(path), answer)
    return answer


def _absolute(path: Path) -> str:
    """Not without its `..`: behind a link that leads somewhere else."""
    text = os.fspath(path)
    if os.path.isabs(text):
        return text
    return os.getcwd() if text == "." else os.path.join(os.getcwd(), text)


# ---- states and contents -------------------------------------------------------------------------


def _settled(state: State) -> State:
    """The state, unless there may be another change that leaves it as it is."""
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
