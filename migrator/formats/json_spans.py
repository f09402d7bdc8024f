"""JSON with the places of its values, so that a file can be changed in its own layout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_decoder = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Span:
    """A part of a file's text: a JSON value."""

    start: int
    end: int


def skip(text: str, at: int, expected: str = "") -> int:
    """Skip white space and, if present, one of the expected characters."""
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    return at + 1 if expected and text[at] in expected else at


def members(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """The members of a JSON object, with the positions of their values."""
    if text[start] != "{":
        raise KeyError("object")
    at = skip(text, start + 1)
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        at = skip(text, skip(text, at, ":"))
        _, end = _decoder.raw_decode(text, at)
        yield name, Span(at, end)
        at = skip(text, skip(text, end, ","))


def items(text: str, start: int) -> Iterator[tuple[Any, Span]]:
    """The items of a JSON array, with their positions."""
    if text[start] != "[":
        raise KeyError("array")
    at = skip(text, start + 1)
    while text[at] != "]":
        found, end = _decoder.raw_decode(text, at)
        yield found, Span(at, end)
        at = skip(text, skip(text, end, ","))


def value(text: str, span: Span) -> Any:
    return _decoder.raw_decode(text, span.start)[0]


def leaves(text: str, span: Span, path: tuple[str, ...]) -> Iterator[tuple[str, Span]]:
    """All values in nested objects that aren't objects, by dotted path."""
    for name, inner in members(text, span.start):
        if text[inner.start] == "{":
            yield from leaves(text, inner, (*path, name))
        else:
            yield ".".join((*path, name)), inner
