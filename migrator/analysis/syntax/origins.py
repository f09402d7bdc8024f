"""Origins: maps positions in a derived text to the text that it was derived from.

Code for another target is migrated by way of the GPU code that it stands for; diagnostics for that
have to refer to the user's own text.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from migrator.diagnostics import START, Diagnostic, Outcome, Range, Safety, SourceMap, shortened

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_MANY = 4000  # tokens of one block of changed lines that are compared one by one


@dataclass(frozen=True)
class _Part:
    """A part of the new text, by offsets, and the part of the old text that it replaced."""

    start: int
    end: int
    old_start: int
    old_end: int
    same: bool


class Origins:
    """Maps positions in `after` to `before`."""

    def __init__(self, before: str, after: str) -> None:
        self._before, self._after = SourceMap(before), SourceMap(after)
        self._parts = list(_parts(self._before.lines, self._after.lines))
        self._starts = [part.start for part in self._parts]

    def line(self, number: int) -> int:
        """The line that a line of the new text was, or replaced."""
        starts, lines = self._after.starts, self._after.lines
        number = min(number, len(lines))
        text = lines[number - 1] if lines else ""
        at = starts[number - 1] + len(text) - len(text.lstrip())
        return self._place(self._old(at)[0])[0]

    def lines(self, where: Range) -> Range:
        """A range of the new text on the lines of the old one."""
        return replace(where, line=self.line(where.line), end_line=self.line(where.end_line))

    def find(self, where: Range) -> tuple[Range, str] | None:
        """The old range and text of a range of the new text.

        None if it is new.
        """
        start, end = (
            self._offset(where.line, where.column),
            self._offset(where.end_line, where.end_column),
        )
        old_start, starts_there = self._old(start)
        old_last, ends_there = self._old(max(end - 1, start))
        if not starts_there or not ends_there:
            return None
        old_end = old_last + (end > start)
        place = Range(*self._place(old_start), *self._place(old_end))
        return place, self._before.text[old_start:old_end]

    def holds(self, construct: str) -> bool:
        """Whether an excerpt occurs in the old text."""
        return construct.removesuffix("…") in self._words

    @cached_property
    def _words(self) -> str:
        return " ".join(self._before.text.split())

    def near(self, where: Range) -> tuple[int, int]:
        """The approximate old position, by line and column, of something new."""
        return self._place(self._old(self._offset(where.line, where.column))[0])

    def _offset(self, line: int, column: int) -> int:
        return self._after.starts[min(line, len(self._after.lines)) - 1] + column - 1

    def _old(self, offset: int) -> tuple[int, bool]:
        """The offset in the old text, and whether the position is unchanged."""
        if not self._parts:
            return 0, False
        part = self._parts[max(bisect_right(self._starts, offset) - 1, 0)]
        if part.same and offset < part.end:
            return part.old_start + offset - part.start, True
        return part.old_end if offset >= part.end else part.old_start, False

    def _place(self, offset: int) -> tuple[int, int]:
        line = max(bisect_right(self._before.starts, offset, hi=len(self._before.lines)), 1)
        return line, offset - self._before.starts[line - 1] + 1


def _parts(before: Sequence[str], after: Sequence[str]) -> Iterator[_Part]:
    """The parts that two texts share: by lines, and within changed lines by tokens."""
    start = old = 0
    for lines_before, lines_after, same in _blocks(before, after):
        parts: Iterable[_Block] = [(lines_before, lines_after, same)]
        if lines_before and lines_after and not same:
            tokens = [_TOKEN.findall("".join(lines)) for lines in (lines_before, lines_after)]
            if sum(map(len, tokens)) <= _MANY:
                parts = _blocks(*tokens)
        for part_before, part_after, same in parts:
            size, old_size = sum(map(len, part_after)), sum(map(len, part_before))
            if size:
                yield _Part(start, start + size, old, old + old_size, same)
            start, old = start + size, old + old_size


_Block = tuple[Sequence[str], Sequence[str], bool]


def _blocks(before: Sequence[str], after: Sequence[str]) -> Iterator[_Block]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        yield before[a:b], after[c:d], tag == "equal"


def of_original(
    origins: Origins, read: Sequence[Diagnostic], made: Sequence[Diagnostic], *, stays: bool
) -> list[Diagnostic]:
    """Diagnostics for a text, and for another derived from it, expressed for the first.

    What is new in the second came from a construct that was rewritten (in `read`): it isn't
    reported again, unless it could not be migrated then. If the file `stays` as it was, so do these
    constructs, for the same reason as everything else.
    """
    rewritten = [d for d in read if d.outcome is Outcome.REWRITTEN]
    found: list[Diagnostic] = []
    left: set[int] = set()
    for said in made:
        message = _LINE.sub(lambda m: f"line {origins.line(int(m[1]))}", said.message)
        touched = tuple(map(origins.lines, said.touched))
        said = replace(said, message=message, touched=touched)
        place = origins.find(said.range)
        if said.range == START and not said.construct:
            found.append(said)
        elif place is not None:
            text = said.construct  # of a method, with its object
            if not origins.holds(text):
                text = shortened(place[1])
            found.append(replace(said, range=place[0], construct=text))
        elif rewritten:
            origin = _nearest(rewritten, origins.near(said.range))
            if said.outcome is Outcome.REPORTED:
                left.add(id(origin))
            elif said.outcome is not None and said.safety is not Safety.UNSAFE:
                continue
            found.append(replace(said, range=origin.range, construct=origin.construct))
    reasons = [d for d in found if d.outcome is Outcome.REPORTED] if stays else []
    for each in rewritten:
        if id(each) not in left:
            why = reasons[0] if reasons else each
            found.append(replace(why, range=each.range, construct=each.construct))
    return found


_LINE = re.compile(r"(?<!\.py, )\bline (\d+)\b")


def _nearest(constructs: Sequence[Diagnostic], at: tuple[int, int]) -> Diagnostic:
    line, column = at

    def distance(of: Diagnostic) -> tuple[int, int]:
        where = of.range
        if (where.line, where.column) <= at <= (where.end_line, where.end_column):
            return 0, 0
        return min(abs(where.line - line), abs(where.end_line - line)), abs(where.column - column)

    return min(constructs, key=distance)
