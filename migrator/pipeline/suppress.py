"""Comments that switch rules off: for a line, a region or a file.

`# tpu-migrate: ignore` or `ignore[CODE,…]` on a line, `# tpu-migrate: off` … `# tpu-migrate: on`
around lines, `# tpu-migrate: ignore-file` or `ignore-file[CODE,…]` anywhere. Comments of shell
scripts, requirements and YAML count, too.
"""

from __future__ import annotations

import io
import re
import tokenize

from migrator.diagnostics import Range
from migrator.formats.embedded import holds_text

_MARK = re.compile(r"#.*?\btpu-migrate:\s*(ignore-file|ignore|off|on)\b(?:\[([^\]]*)\])?")


class Suppressions:
    """What the comments of one file switch off."""

    def __init__(self, text: str) -> None:
        self.lines: dict[int, tuple[str, ...]] = {}
        self.file: tuple[str, ...] | None = None
        self.regions: list[tuple[int, int]] = []
        if "tpu-migrate:" in text:
            self._read(text)

    def _read(self, text: str) -> None:
        start = 0
        last = text.count("\n") + 2
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT and not holds_text(token):
                continue
            match = _MARK.search(token.string)
            if match is None:
                continue
            line = token.start[0]
            codes = tuple(c.strip() for c in (match[2] or "").split(",") if c.strip())
            if match[1] == "ignore":
                self.lines[line] = codes
            elif match[1] == "ignore-file":
                self.file = codes
            elif match[1] == "off" and not start:
                start = line
            elif match[1] == "on" and start:
                self.regions.append((start, line))
                start = 0
        if start:
            self.regions.append((start, last))

    def covers(self, where: Range, code: str) -> bool:
        if self.file is not None and _matches(self.file, code):
            return True
        if any(start <= where.line <= end for start, end in self.regions):
            return True
        lines = (self.lines[n] for n in range(where.line, where.end_line + 1) if n in self.lines)
        return any(_matches(codes, code) for codes in lines)


def comment_for(text: str, first: int, last: int, code: str) -> tuple[int, int, str] | None:
    """Where a comment that switches a rule off on lines `first` to `last` goes, and its text.

    The line is counted from 1, the column from 0. None where no comment can stand, or one does that
    says so.
    """
    lines = io.StringIO(text).readlines()
    comments: dict[int, tokenize.TokenInfo] = {}
    ends: list[int] = []
    try:
        for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
            if token.type == tokenize.COMMENT:
                comments[token.start[0]] = token
            elif token.type in (tokenize.NEWLINE, tokenize.NL):
                ends.append(token.start[0])
    except (tokenize.TokenError, SyntaxError):
        return None
    for number in sorted(n for n in ends if first <= n <= last):
        comment = comments.get(number)
        mark = _MARK.search(comment.string) if comment is not None else None
        if comment is not None and mark is not None:
            if mark[1] != "ignore":
                continue
            if not (mark[2] or "").strip():
                return None
            return number, comment.start[1] + mark.end() - 1, f", {code}"
        said = lines[number - 1].rstrip() if number <= len(lines) else ""
        return number, len(said), f"{'  ' if said else ''}# tpu-migrate: ignore[{code}]"
    return None


def _matches(codes: tuple[str, ...], code: str) -> bool:
    return not codes or any(code.startswith(c) for c in codes)
