"""Environments of conda (environment.yml): the block lists that conda writes and people keep.

Any other YAML in the list of dependencies (mappings, `[…]`, anchors) is not read.
"""

from __future__ import annotations

import re
from itertools import accumulate

from migrator.diagnostics import lines_of
from migrator.formats.embedded_text import CONDA, REQUIREMENT
from migrator.formats.entries import Entry, PipList

_HEAD = re.compile(rb"^dependencies:[ \t]*(?:#.*)?\r?$", re.MULTILINE)
_ITEM = re.compile(
    r"(?P<indent> *)- +(?P<quote>[\"']?)"
    r"(?P<text>[\w.+/~<>=!@-](?:(?!:(?:\s|$))[^\s\"'#\\]|(?<=\S)\#|[ \t]++(?![\s#\"']))*+)"
    r"(?P=quote)"
    r"(?P<tail>[ \t]*(?:(?<=[ \t])#.*)?\r?\n?)"
)
_PIP = re.compile(r"(?P<indent> *)-(?P<space> +)pip:[ \t]*(?:#.*)?\r?\n?")
_NOTHING = re.compile(r"\s*(?:#.*)?\r?\n?")
_PYTHON = re.compile(r"(?:[\w./-]+::)?(?:python|pip|pytorch|numpy|torchvision|tensorflow|keras)\b")


def may_be_one(content: bytes) -> bool:
    """A cheap test: False if a YAML file isn't an environment."""
    return _HEAD.search(content) is not None


def read(text: str) -> tuple[list[Entry], PipList] | None:
    """The packages of conda and pip, and the place of pip's list; None for other YAML files."""
    rows = lines_of(text)
    starts = [0, *accumulate(map(len, rows))]
    at = next(n for n, row in enumerate(rows) if _HEAD.fullmatch(row.rstrip("\n").encode())) + 1
    found: list[Entry] = []
    indent: str | None = None
    pip: re.Match[str] | None = None  # the list that contains the lines
    place: PipList | None = None
    last = starts[at]
    end = "\r\n" if "\r\n" in text else "\n"
    for number in range(at, len(rows)):
        row, start = rows[number], starts[number]
        if _NOTHING.fullmatch(row):
            continue
        if row[0] not in " -":
            break
        if match := _PIP.fullmatch(row):
            if indent not in (None, match["indent"]) or place is not None:
                return None
            indent, pip = match["indent"], match
            inner = f"{indent} {pip['space']}"
            place = PipList(starts[number + 1], inner, end)
        elif match := _ITEM.fullmatch(row):
            of_pip = pip is not None and len(match["indent"]) > len(indent or "")
            indent = match["indent"] if indent is None else indent
            if not of_pip:
                pip = None
                if match["indent"] != indent:
                    return None
            if place is not None and of_pip and not any(e.line is None for e in found):
                place = PipList(start, match["indent"], end)
            quote = match["quote"]
            joint = f"{quote}{end}{match['indent']}- {quote}"
            span = None if of_pip else (start, starts[number + 1])
            first = start + match.start("text")
            last_at, function = first + len(match["text"]), REQUIREMENT if of_pip else CONDA
            found.append(Entry(first, last_at, match["text"], function, joint, span, match["tail"]))
        else:
            return None
        last = starts[number + 1]
    if not any(_PYTHON.match(entry.text) for entry in found):
        return None
    if place is None:
        indent = indent or ""
        alone = [] if any(e.text.startswith("pip") for e in found) else [f"{indent}- pip{end}"]
        head = "".join([*alone, f"{indent}- pip:{end}"])
        place = PipList(last, f"{indent}  ", end, head)
    return found, place
