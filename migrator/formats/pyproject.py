"""pyproject.toml: where its lists of requirements are. tomllib says what they hold, but not where.

So the text is read again by tokens, and only what tomllib has read alike is taken.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from migrator.formats.entries import Entry

_TOKEN = re.compile(
    r'''(?P<string>"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')'''
    r"""|(?P<comment>\#[^\n]*)|(?P<end>\n)|(?P<mark>[\[\]{}=])|(?P<other>[^"'\#\n\[\]{}=]+)""",
    re.DOTALL,
)
_LISTS = re.compile(
    r"project\.(?:optional-dependencies\..+|dependencies)|dependency-groups\..+"
    r"|tool\.uv\.dev-dependencies"
)
_INDEX = re.compile(r"tool\.(?:uv\.index|poetry\.source|pdm\.source)\.url|tool\.uv\..*index-url")
_NAMED = re.compile(r"tool\.poetry\.(?:group\..+\.)?(?:dev-)?dependencies\..+")


@dataclass(frozen=True)
class _Value:
    """What stands behind a key, by its tokens."""

    path: tuple[str, ...]
    start: int  # of the key
    tokens: list[tuple[re.Match[str], int]]  # with how many brackets are around them


def check(text: str) -> None:
    """Raises ValueError where it is not TOML."""
    tomllib.loads(text)


def lists(text: str) -> list[list[Entry]]:
    """The requirements of each list, and what is only named as a list of its own."""
    try:
        data = tomllib.loads(text)
        values = list(_values(text))
    except ValueError:  # damaged, or with tokens that are not known here
        return []
    found: list[list[Entry]] = []
    for value in values:
        end = value.tokens[-1][0].end() if value.tokens else value.start
        whole = Entry(value.start, end, text[value.start : end])
        path = ".".join(value.path)
        if _LISTS.fullmatch(path):
            entries = [_entry(text, t) for t, depth in value.tokens if depth == 1 and t["string"]]
            known = _at(data, value.path)
            alike = isinstance(known, list) and [e.text for e in entries] == [
                each for each in known if isinstance(each, str)
            ]
            found.append(entries if alike else [whole])
        elif _INDEX.fullmatch(path):
            found.append([_entry(text, t) for t, _ in value.tokens if t["string"]])
        elif _NAMED.fullmatch(path):
            found.append([whole])
    return [entries for entries in found if entries]


def _entry(text: str, token: re.Match[str]) -> Entry:
    start, end = token.start() + 1, token.end() - 1
    quote = text[start - 1]
    before = text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
    line_end = "\r\n" if "\r\n" in text else "\n"
    between = f",{line_end}{before}" if before.strip() == "" else ", "
    return Entry(start, end, text[start:end], f"{quote}{between}{quote}")


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _values(text: str) -> Iterator[_Value]:
    """All keys that have a value, below their tables."""
    table: tuple[str, ...] = ()
    for line in _lines(text):
        said = [(t, depth) for t, depth in line if t["comment"] is None and t["end"] is None]
        first = next((t for t, _ in said if t.group().strip()), None)
        if first is None:
            continue
        if first["mark"] == "[":
            header = "".join(t.group() for t, _ in said).strip()
            table = _path(header.replace("[[", "[").replace("]]", "]"))
            continue
        at = [t["mark"] for t, _ in said].index("=")
        key = "".join(t.group() for t, _ in said[:at])
        start = first.start() + len(first.group()) - len(first.group().lstrip())
        yield _Value((*table, *_path(f"{key} = {{}}")), start, said[at + 1 :])


def _lines(text: str) -> Iterator[list[tuple[re.Match[str], int]]]:
    """Tokens up to each end of a line that no brackets are around."""
    line: list[tuple[re.Match[str], int]] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        depth -= token.group() in ("]", "}")
        line.append((token, depth))
        depth += token.group() in ("[", "{")
        if token["end"] and depth == 0:
            yield line
            line = []
    yield line


def _path(toml: str) -> tuple[str, ...]:
    """The only key of a document, with those inside of it."""
    data = tomllib.loads(toml)
    parts: list[str] = []
    while data:
        ((part, data),) = data.items()
        parts.append(part)
    return tuple(parts)
