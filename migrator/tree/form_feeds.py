"""Form feeds in front of statements, as GNU style has them between the parts of a file.

LibCST loses those (seen in 1.9), though none on a line of its own or of a comment: so it gets each
as a comment on a line of its own.
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from itertools import accumulate

_IN_FRONT = re.compile(r"^[ \t\f]*\f", re.MULTILINE)
_NO_CODE = frozenset({
    tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
})  # fmt: skip


class FormFeeds:
    """A text in which comments stand for the form feeds that LibCST would lose."""

    def __init__(self, text: str) -> None:
        places = _in_front_of_statements(text) if _IN_FRONT.search(text) else []
        end = re.search(r"\r\n?|\n", text)
        mark = "#\f"
        while mark in text:
            mark += "\f"
        self._mark = mark + (end[0] if end else "\n")
        self._added = len(self._mark) - 1
        self._behind = [at + number * self._added for number, at in enumerate(places, 1)]
        parts = [text[i:j] for i, j in zip([0, *places], [*places, None], strict=True)]
        self.marked = "".join([f"{part[:-1]}{self._mark}" for part in parts[:-1]] + parts[-1:])

    def offset(self, offset: int) -> int:
        """The offset in the text of one in the marked text."""
        return offset - bisect_right(self._behind, offset) * self._added

    def unmarked(self, text: str) -> str:
        """A form feed in front of the last statement goes with it."""
        kept = re.sub(rf"^[ \t]*{re.escape(self._mark)}\s*\Z", "", text, flags=re.MULTILINE)
        return kept.replace(self._mark, "\f")


def _in_front_of_statements(text: str) -> list[int]:
    """Offsets behind the form feeds on the first lines of statements."""
    starts = [0, *accumulate(map(len, io.StringIO(text)))]
    found: list[int] = []
    is_first = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                is_first = True
            elif is_first and token.type not in _NO_CODE:
                is_first = False
                feed = _IN_FRONT.match(token.line[: token.start[1]])
                if feed:
                    found.append(starts[token.start[0] - 1] + feed.end())
    except (tokenize.TokenError, SyntaxError):
        pass  # the round trip fails, and is reported
    return found
