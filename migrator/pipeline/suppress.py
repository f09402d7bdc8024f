"""Comments and settings that switch rules off: for a line, a region or a file.

`# tpu-migrate: ignore` or `ignore[CODE,…]` on a line, `# tpu-migrate: off` … `# tpu-migrate: on`
around lines, `# tpu-migrate: ignore-file` or `ignore-file[CODE,…]` anywhere. Comments of shell
scripts, requirements and YAML count, too.
"""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Set

from migrator.codes import current
from migrator.diagnostics import Range
from migrator.formats.embedded_text import holds_text

_WORDS = ("ignore-file", "ignore", "off", "on")
_MARK = re.compile(rf"#.*?\btpu-migrate:\s*({'|'.join(_WORDS)})(?![\w-])(?:\[([^\]]*)\])?")
_ANY = re.compile(r"#.*?\btpu-migrate:\s*([\w-]+)")


class Suppressions:
    """What the comments of one file, and the settings for it, switch off."""

    def __init__(self, text: str, codes: tuple[str, ...] = ()) -> None:
        self.codes = codes  # that the settings switch off in the file
        self.lines: dict[int, tuple[str, ...]] = {}
        self.file: tuple[str, ...] | None = None
        self.regions: list[tuple[int, int]] = []
        self.marks: list[tuple[Range, str, tuple[str, ...]]] = []  # place, word and codes
        self.imports: set[int] = set()  # lines of imports, which other targets may look at
        self.asked: dict[int, set[str]] = {}  # codes that looked at something, by line
        self.misspelt: list[tuple[Range, str]] = []
        if "tpu-migrate:" in text:
            self._read(text)

    def _read(self, text: str) -> None:
        start = 0
        last = text.count("\n") + 2
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT and not holds_text(token):
                continue
            match = _MARK.search(token.string)
            line, where = token.start[0], _place(token)
            if match is None:
                other = _ANY.search(token.string)
                if other and difflib.get_close_matches(other[1], _WORDS, 1, 0.7):
                    self.misspelt.append((where, other[1]))
                continue
            said = (c.strip() for c in (match[2] or "").split(","))
            codes = current(c for c in said if c)
            self.marks.append((where, match[1], codes))
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
        if self.codes and _matches(self.codes, code):
            return True
        if self.file is not None and _matches(self.file, code):
            return True
        if any(start <= where.line <= end for start, end in self.regions):
            return True
        self.look_at(where, (code,))
        lines = range(where.line, where.end_line + 1)
        return any(_matches(self.lines[n], code) for n in lines if n in self.lines)

    def look_at(self, where: Range, codes: Iterable[str]) -> None:
        """Note that rules look at something in a place, whatever they decide."""
        for line in range(where.line, where.end_line + 1) if self.lines else ():
            if line in self.lines:
                self.asked.setdefault(line, set()).update(codes)

    def without_effect(
        self, known: Collection[str], of_constructs: Set[str]
    ) -> Iterator[tuple[Range, str]]:
        """Comments that have no effect, and why.

        Args:
            known: all codes.
            of_constructs: those of rules that look at constructs alone.
        """
        words = f"{', '.join(_WORDS[:-1])} or {_WORDS[-1]}"
        for where, word in self.misspelt:
            yield where, f"`{word}` is not one of {words}: this comment does nothing"
        for where, word, codes in self.marks:
            unknown = [code for code in codes if not any(k.startswith(code) for k in known)]
            if unknown:
                yield where, f"there is no rule {' or '.join(unknown)}: nothing is ignored"
            elif word == "ignore" and where.line not in {*self.asked, *self.imports}:
                yield where, "there is nothing to ignore on this line: remove the comment"
            elif word == "ignore" and where.line not in self.imports:
                looked = self.asked[where.line] | {*known} - of_constructs
                unused = [c for c in codes if not any(code.startswith(c) for code in looked)]
                if not unused:
                    continue
                it = "it" if len(unused) == 1 else "them"
                said = f"{' and '.join(unused)} on this line: take {it} out of the comment"
                yield where, f"there is nothing for {said}"


def comment_for(text: str, first: int, last: int, code: str) -> tuple[int, int, str] | None:
    """The place and text of a comment that switches a rule off on lines `first` to `last`.

    The line counts from 1, the column from 0. None if no comment fits there, or one exists.
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


def _place(token: tokenize.TokenInfo) -> Range:
    """A position in characters from 1, as in diagnostics."""
    (line, column), (end_line, end_column) = token.start, token.end
    return Range(line, column + 1, end_line, end_column + 1)


def _matches(codes: tuple[str, ...], code: str) -> bool:
    return not codes or any(code.startswith(c) for c in codes)
