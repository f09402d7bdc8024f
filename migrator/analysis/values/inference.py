"""Inference over values that depend on each other, and on themselves.

Each value is inferred once, or a few times if it depends on itself. So the time grows with the
code, and the result does not depend on the order of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, Self, TypeVar


class _Joined(Protocol):
    """A lattice: results are joined by `|` (flags, or a bool)."""

    def __or__(self, other: Self, /) -> Self: ...


Known = TypeVar("Known", bound=_Joined)

_DEPTH = 100  # length of a chain of values that is followed; beyond it nothing is known
_ROUNDS = 20


class Inference(Generic[Known]):
    """Inferred results by key; `nothing` stands for unknown.

    `all_in_order` infers everything in source order first, so that long chains of values never
    recurse deeply.
    """

    def __init__(self, nothing: Known, all_in_order: Callable[[], None] = lambda: None) -> None:
        self.nothing = nothing
        self._all_in_order = all_in_order
        self.known: dict[Hashable, Known | None] = {}  # None while it is being inferred
        self._guesses: dict[Hashable, Known] = {}  # so far, if it depends on itself
        self._found: list[Hashable] = []  # in this search
        self._depth = 0
        self._grew = self._gave_up = self._is_ordered = False

    def of(self, key: Hashable, infer: Callable[[], Known]) -> Known:
        """The result of `infer` for a key, repeated until it no longer grows if the key depends on
        itself."""
        if key in self.known:
            found = self.known[key]
            return self._guesses.setdefault(key, self.nothing) if found is None else found
        if self._depth:
            return self._search(key, infer)
        for left in reversed(range(_ROUNDS)):
            self._found, self._grew, self._gave_up = [], False, False
            known = self._search(key, infer)
            too_deep = self._gave_up and not self._is_ordered
            if not left or not (self._grew or too_deep):
                break
            for each in self._found:
                del self.known[each]
            if too_deep:
                self._is_ordered = True
                self._all_in_order()
        self._guesses.clear()
        return known

    def _search(self, key: Hashable, infer: Callable[[], Known]) -> Known:
        if self._depth >= _DEPTH:
            self._gave_up = True
            return self.nothing
        self.known[key] = None
        self._depth += 1
        try:
            known = self.known[key] = infer()
            self._found.append(key)
        except BaseException:
            del self.known[key]
            raise
        finally:
            self._depth -= 1
        guess = self._guesses.get(key, known)
        if known | guess != guess:
            self._guesses[key] = known | guess
            self._grew = True
        return known
