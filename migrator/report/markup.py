"""Markdown that text from any source can't break."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$^-])")
_CODE = re.compile(r"`([^`\n]+)`")


def code(text: str) -> str:
    """A code span, also valid in a table cell."""
    text = _printable(text) or " "
    mark = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{mark}{pad}{text}{pad}{mark}".replace("|", "\\|")


def escape_markup(text: str) -> str:
    """Text without any markup; it mentions nobody and links no issue."""
    escaped = _SPECIAL.sub(r"\\\1", _printable(text).replace("\u200b", ""))
    return re.sub(r"(@|\\#|GH\\-)(?=[\w\\])", "\\1\u200b", escaped)


def prose(text: str) -> str:
    """A message of this tool, in which `code` is marked."""
    return "".join(
        code(piece) if is_code else escape_markup(piece) for piece, is_code in pieces(text)
    )


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """A message of this tool in pieces, with whether each is `code`."""
    for number, piece in enumerate(_CODE.split(text)):
        yield piece, number % 2 == 1


def fenced(lines: Iterable[str], language: str) -> str:
    """A block of code; the fence is longer than any inside it."""
    return verbatim(list(map(_line, lines)), language)


def verbatim(lines: Sequence[str], language: str) -> str:
    """Like `fenced`, but with every character unchanged: for text that is meant to be copied."""
    text = "\n".join(lines)
    mark = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{mark}{language}\n{text}\n{mark}" if lines else f"{mark}{language}\n{mark}"


def difference(before: Sequence[str], after: Sequence[str], above: Sequence[str] = ()) -> str:
    """Removed and added lines, below other lines."""
    marked = [(" ", above), ("-", before), ("+", after)]
    return changed([f"{mark}{line}" for mark, lines in marked for line in lines])


def changed(lines: Sequence[str], limit: int = 60) -> str:
    """Lines of a diff as a block that services show in colour."""
    if len(lines) > limit:
        lines = [*lines[:limit], f" … {len(lines) - limit} more lines"]
    return fenced((line[:400] for line in lines), "diff")


LIMIT = 65_536  # characters in a GitHub comment; bytes are counted, which are never fewer


class Page:
    """Sections that keep to a common limit."""

    def __init__(self, head: Sequence[str], limit: int = LIMIT) -> None:
        self.blocks = list(head)
        self.room = limit - size(self.text) - 400

    @property
    def text(self) -> str:
        return "\n\n".join(self.blocks)

    def add(self, title: str, items: Sequence[str], share: float, *, fold: bool = False) -> None:
        """A section with as many items as fit into a share of the remaining room.

        `title` is the tool's own text.
        """
        if not items:
            return
        room = int(self.room * share) - size(title) - 60
        body = fitting(items, room, "… and {} more") if room > 0 else f"{len(items)} in all"
        if fold:
            body = f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
        self.blocks += [body] if fold else [f"#### {title}", body]
        self.room -= size(body) + size(title) + 10


def size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def fitting(items: Sequence[str], room: int, more: str) -> str:
    """As many whole items as fit, and `more` with the number of the others."""
    room -= size(more) + 12
    taken = 0
    for item in items:
        room -= size(item) + 2
        if room < 0:
            break
        taken += 1
    rest = [more.format(len(items) - taken)] if taken < len(items) else []
    return "\n\n".join([*items[:taken], *rest])


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == " " else " " for c in text)


def _line(text: str) -> str:
    """A line with any characters replaced that would end it or change the direction of text."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
