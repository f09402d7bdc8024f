"""Tokens: a quick test whether a file holds one of many words."""

from __future__ import annotations

import re

_PLAIN = re.compile(rb"[\w-]+")
_MAYBE = re.compile(rb"[\w-](?:[?*]|\{[^}]*\})")
_CERTAIN = re.compile(rb"[\w-]+")  # letters that each match of a pattern has, behind all that


class Tokens:
    """Patterns, each looked for by itself, and only behind the letters that it is sure to have.

    One alternation of them all tries each at every place, which takes ten times as long.
    """

    def __init__(self, *patterns: bytes, ignore_case: bool = False) -> None:
        """With `ignore_case` all of them are written in lower case."""
        self._ignore_case = ignore_case
        words = {each for each in patterns if _PLAIN.fullmatch(each)}
        self._words = sorted(w for w in words if not any(o in w for o in words - {w}))
        self._patterns = [
            (_certain(each), re.compile(each)) for each in patterns if not _PLAIN.fullmatch(each)
        ]

    @property
    def letters(self) -> tuple[bytes, ...]:
        """What any text with one of them has some of."""
        return *self._words, *(certain for certain, _ in self._patterns)

    def are_in(self, source: bytes) -> bool:
        if self._ignore_case:
            source = source.lower()
        return any(word in source for word in self._words) or any(
            certain in source and pattern.search(source) is not None
            for certain, pattern in self._patterns
        )


def _certain(pattern: bytes) -> bytes:
    """The longest run of letters in a pattern that no bracket holds; empty where there is none."""
    outside = re.sub(rb"\\.|\[[^]]*\]|\([^)]*\)", b" ", pattern)
    return max(_CERTAIN.findall(_MAYBE.sub(b" ", outside)), key=len, default=b"")
