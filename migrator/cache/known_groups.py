"""Groups: the results of parts of a run, for a later run in which only other parts have changed.

If some files have changed, the results for groups of files that depend on none of them are still
valid. How a result is packed is up to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from migrator.cache import entry_store
from migrator.cache.tool import as_it_is
from migrator.files.states import QUESTIONS, State, state_of
from migrator.files.witness import Witness

GROUPS = "groups"  # the kind of its entries
# A packed result, and the parts of what it depends on.
_Entry = tuple[bytes, dict[str, State], list[tuple[str, str, object]], bytes]


class KnownGroups:
    """The stored results of earlier runs that differ from this one in files alone.

    Args:
        run: everything else that results depend on, besides the tool itself.
    """

    def __init__(self, run: str) -> None:
        self._run = repr((os.getcwd(), run))
        self._tool = as_it_is()
        tool, groups = entry_store.load_entry(GROUPS, self._run) or (None, {})
        self._groups: dict[tuple[str, ...], _Entry] = groups if tool == self._tool else {}
        self._kept: dict[tuple[str, ...], _Entry] = {}
        self._states: dict[str, State] = {}  # now
        self._answers: dict[tuple[str, str], object] = {}

    def find(self, files: Sequence[str]) -> bytes | None:
        """The result for a group, if everything it depends on is unchanged."""
        key = tuple(files)
        entry = self._groups.get(key)
        if entry is None:
            return None
        packed, states, answers, contents = entry
        if any(self._answer(question, path) != answer for question, path, answer in answers):
            return None
        known = Witness.of(states, answers, contents)
        different = [path for path, state in states.items() if self._state(path) != state]
        if not known.hold_the_same(different):
            return None
        self._kept[key] = packed, *known.parts()
        return packed

    def keep(self, files: Sequence[str], packed: bytes, seen: Witness) -> None:
        """Store a group's result, and what it depends on."""
        if seen.is_whole:
            self._kept[tuple(files)] = packed, *seen.parts()

    def save(self) -> None:
        """Store the results of this run, in place of those of the last one."""
        entry_store.store_entry(GROUPS, self._run, (self._tool, self._kept))

    def _state(self, path: str) -> State:
        if path not in self._states:
            self._states[path] = state_of(path)
        return self._states[path]

    def _answer(self, question: str, path: str) -> object:
        key = question, path
        if key not in self._answers:
            self._answers[key] = QUESTIONS[question](path)
        return self._answers[key]
