"""Text as a shell reads it: words, and separators between commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

_PART = re.compile(
    r"""(?P<end>&&|\|\||[;|&()]|(?<!\\)\n|(?<!\S)\#.*)"""
    r"""|(?P<word>(?:\$\{\{.{0,200}?\}\}|\$?\{[^}\s]{0,200}\}|[^\s"'|;&()\\]|\\.|"[^"]*"|'[^']*')+)""",
)


_SPECIAL = re.compile(r"""[\s"'\\]""")  # what a shell takes out of a word


class ShellWord(NamedTuple):
    """The start, end and value of a word; an empty one ends a command."""

    start: int
    end: int
    text: str


def words(text: str) -> Iterator[ShellWord]:
    for match in _PART.finditer(text):
        yield ShellWord(*match.span(), "" if match["end"] is not None else _unquoted(match[0]))


def quoted(word: str, mark: str = "'") -> str:
    """A word quoted for any shell: zsh treats `a[b]` as a pattern."""
    return word if re.fullmatch(r"[\w@%+=:,./-]*", word) else f"{mark}{word}{mark}"


def _unquoted(word: str) -> str:
    if _SPECIAL.search(word) is None:
        return word
    try:
        return "".join(shlex.split(word))
    except ValueError:
        return word
