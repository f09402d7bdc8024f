"""A quick test whether a file holds one of many words, and code without its prose."""

from __future__ import annotations

import re
from functools import cache, lru_cache

_PLAIN = re.compile(rb"[\w-]+")
_WORD = re.compile(rb"(\\b)?(\w+)(\\b)?")
_MAYBE = re.compile(rb"[\w-](?:[?*]|\{[^}]*\})")
_CERTAIN = re.compile(rb"\w+")  # letters that each match of a pattern has, behind all that
# All but letters, digits and underscores become spaces.
_APART = bytes(c if re.match(rb"\w", bytes([c])) else 32 for c in range(256))
# Strings, docstrings and comments: the first part that fits tells where each ends.
_LONG = (
    rb'"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+"""',
    rb"'''(?:[^'\\]++|\\[\s\S]|'(?!''))*+'''",
)
_SHORT = rb'"(?:[^"\\\n]++|\\[\s\S])*+"', rb"'(?:[^'\\\n]++|\\[\s\S])*+'"
_PROSE = re.compile(
    rb"(?m)(^[ \t]*[rRuU]?(?:%b)[ \t\r]*$)|%b|(#[^\r\n]*)"
    % (b"|".join(_LONG), b"|".join(_LONG + _SHORT))
)


class Tokens:
    """Patterns, each looked for by itself, and only where a word has the letters that it needs.

    One alternation of them all tries each at every place, which takes ten times as long.
    """

    def __init__(self, *patterns: bytes, ignore_case: bool = False) -> None:
        """With `ignore_case` all of them are written in lower case."""
        self._ignore_case = ignore_case
        plain = {each for each in patterns if _PLAIN.fullmatch(each)}
        needed = plain - {word for word in plain if any(o in word for o in plain - {word})}
        found = [_part(each) for each in patterns if each in needed or each not in plain]
        self._parts = sorted(found, key=lambda part: part[1] is not None)

    def are_in(self, source: bytes, words: bytes | None = None) -> bool:
        """Whether a text has one; `words`: its words, if they are known."""
        words = words_of(source) if words is None else words
        if self._ignore_case:
            words, source = words.lower(), source.lower()
        return any(
            letters in words and (pattern is None or _compiled(pattern).search(source) is not None)
            for letters, pattern in self._parts
        )


@lru_cache(maxsize=4096)  # most texts are searched for many
def words_of(source: bytes) -> bytes:
    """The words of a text, each once and on a line of its own: a sixth of most programs."""
    return b"\n%b\n" % b"\n".join(set(source.translate(_APART).split()))


def _part(pattern: bytes) -> tuple[bytes, bytes | None]:
    """What `words_of` has some of where a text has the pattern, which is None if that is enough."""
    if word := _WORD.fullmatch(pattern):
        return b"\n" * bool(word[1]) + word[2] + b"\n" * bool(word[3]), None
    return _certain(pattern), pattern


_compiled = cache(re.compile)  # few of them are needed in a run, and to compile all takes long


def _certain(pattern: bytes) -> bytes:
    """The longest run of letters in a pattern that no bracket holds; empty where there is none."""
    outside = re.sub(rb"\\.|\[[^]]*\]|\([^)]*\)", b" ", pattern)
    return max(_CERTAIN.findall(_MAYBE.sub(b" ", outside)), key=len, default=b"")


def without_prose(source: bytes) -> bytes:
    """Python source without its comments and docstrings."""
    return _PROSE.sub(_kept, source)


def _kept(found: re.Match[bytes]) -> bytes:
    """What is left of a string or a comment; a string by itself may be an argument, too."""
    if found.lastindex is None:
        return found[0]
    before, at = found.string, found.start()
    while at and before[at - 1] in b" \t\r\n":
        at -= 1
    is_prose = found.lastindex == 2 or at == 0 or before[at - 1] == ord(":")
    return b"" if is_prose else found[0]
