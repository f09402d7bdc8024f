"""The changes in a file, hunk by hunk, with the diagnostics that explain them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from migrator.diagnostics import Diagnostic, Range, Safety, SourceMap, lines_of
from migrator.formats import file_kinds, notebook, python_source
from migrator.pipeline.result import Result

_IMPORT = re.compile(r"\s*(?:import|from)\s|\s*[\w., ]*\)?\s*(?:#.*)?$")
_NAMES = re.compile(r"\s*(?:from\s+\S+\s+)?import\s+(.+)")
_WORD = re.compile(r"[^\W\d]\w*")
_TODO = re.compile(r"\s*# TPU-TODO\[")


@dataclass(frozen=True)
class FilePart:
    """A part of a file as reports show it: the whole file, or one cell of a notebook.

    ``cell`` counts from 1; 0: the file itself, or a notebook's metadata.
    """

    cell: int
    before: list[str]  # lines, without line ends
    after: list[str]
    of_notebook: bool = False


class Explained:
    """Changed lines with the diagnostics that explain them, or else a label."""

    diagnostics: tuple[Diagnostic, ...]
    label: str

    @property
    def codes(self) -> list[str]:
        return list(dict.fromkeys(d.code for d in self.diagnostics))

    @property
    def name(self) -> str:
        return ", ".join(self.codes) or self.label

    @property
    def safety(self) -> Safety | None:
        """The safety of its least safe edit."""
        known = {d.safety for d in self.diagnostics}
        return Safety.UNSAFE if Safety.UNSAFE in known else Safety.SAFE


@dataclass(frozen=True)
class Hunk(Explained):
    """Adjacent changed lines.

    Line indices count from 0 and the ends are exclusive, like slices of `Part.before` and `.after`.
    """

    cell: int
    start: int
    end: int
    new_start: int
    new_end: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...] = ()  # what explains it, or else:
    label: str = ""  # "imports", "comments" or "metadata"


def file_parts(path_suffix: str, result: Result) -> list[FilePart]:
    """The parts of a file, in file order."""
    if path_suffix != file_kinds.NOTEBOOK:
        return [FilePart(0, _lines(result.original), _lines(result.source))]
    try:
        before, after = (
            notebook.read_notebook(result.original),
            notebook.read_notebook(result.source),
        )
    except notebook.NotANotebook:
        return [FilePart(0, _lines(result.original), _lines(result.source))]
    about = [_about(before), _about(after)]
    sources = {cell.number: cell.source for cell in after.cells}
    found = [FilePart(0, about[0], about[1], True)] if about[0] != about[1] else []
    for cell in before.cells:
        new = sources.get(cell.number, cell.source)
        found.append(FilePart(cell.number, _split(cell.source), _split(new), True))
    return found


def _lines(content: bytes) -> list[str]:
    try:
        text = python_source.decode(content).text
    except (SyntaxError, ValueError):
        text = content.decode("utf-8", "replace")
    return _split(text)


def _split(text: str) -> list[str]:
    """Lines as diagnostics count them: a form feed or U+2028 doesn't end one."""
    return [line.rstrip("\r\n") for line in SourceMap(text).lines] if text else []


def _about(book: notebook.Notebook) -> list[str]:
    values = {name: book.text[span.start : span.end] for name, span in book.metadata.items()}
    return [f'"{name}": {value}' for name, value in values.items()]


def hunks(path_suffix: str, result: Result) -> list[Hunk]:
    """Every hunk of a file, each with the diagnostics whose edits made it."""
    if not result.changed:
        return []
    made = [d for d in result.diagnostics if d.is_edit]
    return [h for part in file_parts(path_suffix, result) for h in _hunks(part, made)]


def apply_hunks(path_suffix: str, result: Result, wanted: Collection[Hunk]) -> bytes:
    """A file with only some of its hunks applied."""
    if path_suffix != file_kinds.NOTEBOOK:
        before, after = (text.decode("latin-1") for text in (result.original, result.source))
        return _made(before, after, wanted).encode("latin-1")
    book = notebook.read_notebook(result.original)
    new = {cell.number: cell.source for cell in notebook.read_notebook(result.source).cells}
    by_cell = {n: [h for h in wanted if h.cell == n] for n in new}
    sources = {c.number: _made(c.source, new[c.number], by_cell[c.number]) for c in book.cells}
    return book.with_sources(sources).encode()


def _made(before: str, after: str, wanted: Iterable[Hunk]) -> str:
    old, new = lines_of(before), lines_of(after)
    text, at = "", 0
    for hunk in sorted(wanted, key=lambda hunk: hunk.start):
        text += "".join(old[at : hunk.start])
        added = "".join(new[hunk.new_start : hunk.new_end])
        text += "\n" + added if text and added and text[-1] not in "\r\n" else added
        at = hunk.end
    return text + "".join(old[at:])


def together(hunks: Sequence[Hunk], diagnostic: Diagnostic) -> list[Hunk]:
    """The hunks that have to be applied together to fix `diagnostic`.

    Its own, all that share a diagnostic with one of these, the program's set-up, and the imports
    that they need. All hunks of the file, if such an import replaces another one.
    """
    found = [h for h in hunks if diagnostic in h.diagnostics]
    while found:
        shared = {d for h in found for d in h.diagnostics}
        words = {word for h in found for line in h.after for word in _WORD.findall(line)}
        more = [
            h
            for h in hunks
            if h in found
            or not shared.isdisjoint(h.diagnostics)
            or any(d.outcome is None for d in h.diagnostics)
            or not words.isdisjoint(_imported(h.after) - _imported(h.before))
        ]
        if any(_imported(h.before) and h not in found for h in more):
            more = list(hunks)  # the others need the import that is replaced
        if len(more) == len(found):
            break
        found = more
    return found


def _imported(lines: Sequence[str]) -> set[str]:
    """The names that the import statements on one line bind."""
    named = (part for line in lines if (m := _NAMES.match(line)) for part in m[1].split(","))
    words = (part.split("#")[0].split() for part in named)
    return {
        names[-1].partition(".")[0] if len(names) == 1 else names[-1] for names in words if names
    }


def _hunks(part: FilePart, made: Sequence[Diagnostic]) -> Iterator[Hunk]:
    found = [o[1:] for o in _opcodes(part) if o[0] != "equal"]
    in_part = [(d, r) for d in made for r in d.touched or (d.range,) if r.cell == part.cell]
    for start, end, first, last in found:
        before, after = tuple(part.before[start:end]), tuple(part.after[first:last])
        adds_imports = start == end and _label(after) == "imports"
        diagnostics = () if adds_imports else _touching(start, end, in_part, part.before)
        about = part.cell == 0 and part.of_notebook
        label = "" if diagnostics else "metadata" if about else _label([*before, *after])
        if not diagnostics and not label and in_part:
            nearest = min(in_part, key=lambda item: abs(item[1].line - 1 - start))
            diagnostics = (nearest[0],)
        yield Hunk(part.cell, start, end, first, last, before, after, diagnostics, label)


def _opcodes(part: FilePart) -> Iterable[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, part.before, part.after, autojunk=False).get_opcodes()


def _touching(
    start: int, end: int, made: Iterable[tuple[Diagnostic, Range]], lines: Sequence[str]
) -> tuple[Diagnostic, ...]:
    """The diagnostics whose edits touch lines `start` to `end`; if equal, the position before."""
    found: dict[Diagnostic, None] = {}
    for diagnostic, where in made:
        if (where.line, where.column) == (where.end_line, where.end_column):
            between = where.line if where.column > 1 else where.line - 1
            while between < start and not lines[between].strip():
                between += 1  # an insertion may be above or below blank lines
            meets = start <= between <= end
        elif start == end:
            meets = where.line - 1 < start < where.end_line
        else:
            meets = where.line - 1 < end and start < where.end_line
        if meets:
            found[diagnostic] = None
    return tuple(found)


def _label(lines: Sequence[str]) -> str:
    said = [line for line in lines if line.strip()]
    if said and all(_TODO.match(line) for line in said):
        return "comments"
    if all(_IMPORT.match(line) for line in said):
        return "imports"
    return ""
