"""Notebooks: the code of a .ipynb file as one Python module, and the file rebuilt with other code.

State carries over between cells, so they are read as one module, with a statement between them that
no edit moves. IPython's additions to Python (magics, shell lines, non-Python cells) are represented
by calls that contain their text (embedded_text.py). Only changed cells are rewritten, in the file's
own layout.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from migrator.diagnostics import Range
from migrator.formats import file_kinds
from migrator.formats import json_spans as spans
from migrator.formats import lines as lines_of
from migrator.formats.embedded_text import CELL, COMMAND, FILE, OTHER, TIMED, call, restored
from migrator.formats.json_spans import Span

_BETWEEN = re.compile(rf"^{CELL}\((\d+)\)\n", re.MULTILINE)
# Magics of cells whose text is Python, and of lines that run the rest of the line as Python.
_PYTHON_CELL = re.compile(r"%%(?:time|timeit|capture|prun|notify|debug|tpu_migrate)\b")
_PYTHON_LINE = re.compile(r"(?:%time|%?%(?:timeit|prun))(?:\s+-\w+(?:\s*\d+)?)*\s+(?=\w)")
_SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|shell|script\s+(?:\S*/)?(?:ba)?sh)\b")
_FILE_CELL = re.compile(
    r"\s*%%(?:writefile|file)[ \t]+([\"']?)(?P<name>[^\s\"'-][^\s\"']*)\1[ \t]*\n"
)
_MAGIC = re.compile(
    r"(?P<indent>[ \t]*)(?P<target>[A-Za-z_]\w*(?:[ \t]*,[ \t]*\w+)*[ \t]*=[ \t]*)?"
    r"(?P<text>[!%?].*)",
    re.DOTALL,
)
_HELP = re.compile(r"(?P<indent>[ \t]*)(?P<text>[\w.]+\?{1,2})[ \t]*")

# The Colab and Kaggle machine type to use instead of a GPU; Kaggle's GPUs have their own images.
_MACHINES = (
    {"accelerator": '"TPU"', "colab.gpuType": '"V5E1"'},
    {"kaggle.accelerator": '"tpuV5e8"', "kaggle.isGpuEnabled": "false",
     "kaggle.dockerImageVersionId": "null"},
)  # fmt: skip
_GPU = re.compile(r'"(?:gpu|nvidia\w*)"', re.IGNORECASE)

# A line of a string in JSON.
_RAW = re.compile(r"(?:[^\\]|\\[^n])*\\n|(?:[^\\]|\\[^n])+")


class NotANotebook(ValueError):
    """Why a file can't be read as a notebook with Python code."""


@dataclass(frozen=True)
class Cell:
    """A code cell. ``number`` counts all cells, from 1."""

    number: int
    span: Span
    source: str
    code: str  # as part of the module
    lines: tuple[int, ...]  # source line numbers, for each line of `code`

    @property
    def is_script(self) -> bool:
        """Whether it is a shell script: a cell of `%%bash`."""
        return _SHELL_CELL.match(self.source) is not None

    @property
    def starts_with_python(self) -> bool:
        """Whether code may be inserted above its first line, before anything else in it runs."""
        code = self.code.strip()
        return code != "" and not code.startswith(tuple(f"{f}(" for f in (COMMAND, OTHER, FILE)))


@dataclass(frozen=True)
class Written:
    """A file that a cell writes."""

    cell: Cell
    name: str
    text: str
    above: str  # the magic

    def located(self, where: Range) -> Range:
        """A range of the cell as a range of the file."""
        rows = self.above.count("\n")
        line, end = where.line + rows, where.end_line + rows
        return replace(where, line=line, end_line=end, cell=self.cell.number)

    def replaced(self, module: str, text: str) -> str:
        """The notebook's module, in which the cell writes another text."""
        return module.replace(self.cell.code, call(FILE, self.above + text))


@dataclass(frozen=True)
class Notebook:
    """A notebook's text and its code cells."""

    text: str
    cells: list[Cell]
    metadata: dict[str, Span] = field(default_factory=dict)  # top-level metadata, by path
    for_tpu: bool = True  # whether changed code needs another machine

    @property
    def files(self) -> list[Written]:
        """Files that its cells write, and that can be migrated."""
        writing = [cell for cell in self.cells if cell.code.startswith(f"{FILE}(")]
        found = [(cell, _FILE_CELL.match(cell.source)) for cell in writing]
        return [
            Written(cell, match["name"], cell.source[match.end() :], match[0])
            for cell, match in found
            if match is not None
        ]

    @property
    def module(self) -> str:
        """The code of all cells, each after a statement with the cell's number."""
        return "".join(f"{CELL}({cell.number})\n{cell.code}\n" for cell in self.cells)

    def located(self, where: Range) -> Range:
        """A range of the module as a range of a cell."""
        number = bisect_left(self._ends, where.line)
        if number == len(self.cells):
            return where
        cell = self.cells[number]
        first = self._ends[number] - len(cell.lines)  # the line with its number
        lines = [cell.lines[min(max(n - first, 1), len(cell.lines)) - 1]
                 for n in (where.line, where.end_line)]  # fmt: skip
        return replace(where, line=lines[0], end_line=lines[1], cell=cell.number)

    @cached_property
    def _ends(self) -> Sequence[int]:
        """The last line of each cell in the module."""
        return list(accumulate(1 + len(cell.lines) for cell in self.cells))

    def row(self, cell: int, line: int) -> int:
        """The line in the file for a line of a cell, both counted from 1."""
        span = next((c.span for c in self.cells if c.number == cell), Span(0, 0))
        at = span.start
        if self.text[at : at + 1] == "[":
            rows = 0
            for value, item in spans.items(self.text, span.start):
                at = item.start
                rows += str(value).count("\n") or 1
                if rows >= line:
                    break
        return self.text.count("\n", 0, at) + 1

    def with_module(self, module: str) -> str:
        """The file's text with the code of a module that was derived from this one's.

        If the code differs, and is only for TPUs, Colab is asked for one. Raises ValueError if a
        cell is missing.
        """
        top, *parts = _BETWEEN.split(module)
        numbers = [cell.number for cell in self.cells]
        if [int(n) for n in parts[::2]] != numbers:
            raise ValueError("a cell is missing")
        codes = dict(zip(numbers, parts[1::2], strict=True))
        if top.strip():  # new code above everything else
            number = next((c.number for c in self.cells if c.starts_with_python), None)
            if number is None:
                raise ValueError("no cell is Python")
            codes[number] = f"{top.strip()}\n\n{codes[number]}"
        sources = {}
        for cell in self.cells:
            code = codes[cell.number]
            if code != f"{cell.code}\n":
                ending = cell.source[len(cell.source.rstrip("\n")) :]
                sources[cell.number] = restored(code).rstrip("\n") + ending
        for_tpu = self.for_tpu and module != self.module
        return self._text_with(sources, list(self._machine()) if for_tpu else [])

    def with_sources(self, sources: Mapping[int, str]) -> str:
        """The file's text with new text for cells, by their numbers."""
        return self._text_with(sources, [])

    def _text_with(self, sources: Mapping[int, str], others: list[tuple[Span, str]]) -> str:
        values = list(others)
        for cell in self.cells:
            source = sources.get(cell.number, cell.source)
            if source != cell.source:
                values.append((cell.span, self._as_json(cell.span, source)))
        result, at = [], 0
        for span, value in sorted(values, key=lambda item: item[0].start):
            result += [self.text[at : span.start], value]
            at = span.end
        return "".join([*result, self.text[at:]])

    def _machine(self) -> Iterator[tuple[Span, str]]:
        for values in _MACHINES:
            known = [(self.metadata[n], value) for n, value in values.items() if n in self.metadata]
            if any(_GPU.match(self.text, span.start) for span, _ in known):
                yield from known

    def _as_json(self, span: Span, source: str) -> str:
        """A cell's source as written in the file: unchanged lines keep their text."""
        ascii_only = self.text.isascii() and "\\u" in self.text

        def dumped(value: str) -> str:
            return json.dumps(value, ensure_ascii=ascii_only)

        raw = self.text[span.start : span.end]
        lines = re.findall(r"[^\n]*\n|[^\n]+", source)
        if not raw.startswith("["):
            same = {json.loads(f'"{line}"', strict=False): line for line in _RAW.findall(raw[1:-1])}
            return f'"{"".join(same.get(line) or dumped(line)[1:-1] for line in lines)}"'
        parts = list(spans.items(self.text, span.start))
        known = {value: self.text[s.start : s.end] for value, s in parts}
        elements = [known.get(line) or dumped(line) for line in lines]
        if not elements:
            return "[]"
        before = self.text[span.start + 1 : parts[0][1].start] if parts else "\n    "
        after = self.text[parts[-1][1].end : span.end - 1] if parts else "\n   "
        comma = "," + before if "\n" in before else ", "
        if len(parts) > 1:
            comma = self.text[parts[0][1].end : parts[1][1].start]
        return f"[{before}{comma.join(elements)}{after}]"


def read_notebook(content: bytes, *, for_tpu: bool = True) -> Notebook:
    """Raises NotANotebook, in one line."""
    try:
        text = content.decode("utf-8")
        top = dict(spans.members(text, spans.skip(text, 0)))
        value = {name: spans.value(text, span) for name, span in top.items() if name != "cells"}
        if value.get("nbformat") != 4:
            raise NotANotebook(f"notebook format {value.get('nbformat')}: only 4 is read")
        _check_language(value.get("metadata", {}))
        metadata = dict(spans.leaves(text, top["metadata"], ())) if "metadata" in top else {}
        cells = []
        for number, (_, span) in enumerate(spans.items(text, top["cells"].start), 1):
            if (cell := _cell(text, number, span)) is not None:
                cells.append(cell)
        return Notebook(text, cells, metadata, for_tpu)
    except UnicodeDecodeError as error:
        raise NotANotebook(f"cannot be decoded: {error}") from error
    except (KeyError, StopIteration, IndexError, TypeError, json.JSONDecodeError) as error:
        raise NotANotebook("not a notebook: its JSON is damaged") from error
    except RecursionError as error:
        raise NotANotebook("not a notebook: its JSON is too deeply nested") from error
    except NotANotebook:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise NotANotebook(f"not a notebook that can be read: {error}") from error


def _check_language(metadata: dict[str, Any]) -> None:
    metadata = metadata or {}
    named = [(metadata.get("kernelspec") or {}).get("language"),
             (metadata.get("language_info") or {}).get("name")]  # fmt: skip
    language = next((name for name in named if name), "python")
    if not str(language).lower().startswith(("python", "ipython")):
        raise NotANotebook(f"a notebook of {language}")


def _cell(text: str, number: int, span: Span) -> Cell | None:
    members = dict(spans.members(text, span.start))
    if spans.value(text, members["cell_type"]) != "code":
        return None
    source = spans.value(text, members["source"])
    source = source if isinstance(source, str) else "".join(source)
    if _SHELL_CELL.match(source):
        code, lines = _as_script(source)
    elif (match := _FILE_CELL.match(source)) and _is_known(match["name"], source[match.end() :]):
        code, lines = call(FILE, source), [1]
    else:
        code, lines = _as_python(source)
    try:
        ast.parse(code.encode().decode())
    except (SyntaxError, ValueError):  # another language, Python 2, a part of a file
        code, lines = call(OTHER, source), [1]
    return Cell(number, members["source"], source, code, tuple(lines))


def _is_known(name: str, text: str) -> bool:
    """Whether a file of this name can be migrated; Python has to be valid."""
    path = Path(name)
    if path.suffix != ".py":
        return file_kinds.line_kind(path) is not None
    try:
        ast.parse(text.encode().decode())
    except (SyntaxError, ValueError):
        return False
    return True


def _as_script(source: str) -> tuple[str, list[int]]:
    """The lines of a shell script as commands, with the start of each."""
    commands = lines_of.split(source, continued=True)
    starts = accumulate((command.count("\n") + 1 for command in commands[:-1]), initial=1)
    return "\n".join(call(COMMAND, command) for command in commands), list(starts)


# ---- IPython -------------------------------------------------------------------------------------


def _as_python(source: str) -> tuple[str, list[int]]:
    """A cell's source with placeholders, and the source line for each line."""
    lines = source.split("\n")
    code: list[str] = []
    numbers: list[int] = []
    at = 0
    while at < len(lines):
        line, first = lines[at], at
        found = _command(line, code, is_first=not any(part.strip() for part in code))
        shell = _MAGIC.fullmatch(line) if found is not None else None
        if shell is not None and shell["text"].startswith("!"):
            while lines[at].endswith("\\") and at + 1 < len(lines):
                at += 1
            found = _command("\n".join(lines[first : at + 1]), code, is_first=False)
        code.append(line if found is None else found)
        numbers.append(first + 1)
        at += 1
    return "\n".join(code), numbers


def _command(line: str, above: list[str], *, is_first: bool) -> str | None:
    """An IPython line as Python; None if it is Python already."""
    match = _MAGIC.fullmatch(line) or _HELP.fullmatch(line)
    if match is None or _is_inside(above):
        return None
    text = match["text"]
    if text.startswith("%%") and not (is_first and _PYTHON_CELL.match(text)):
        return None  # its cell isn't Python, and doesn't parse
    target = match.groupdict().get("target") or ""
    python = _PYTHON_LINE.match(text)
    if python is not None:
        return f"{match['indent']}{target}{call(TIMED, python[0])}; {text[python.end() :]}"
    return f"{match['indent']}{target}{call(COMMAND, text)}"


def _is_inside(above: list[str]) -> bool:
    """Whether the next line continues a string, brackets or a line."""
    if above and above[-1].endswith("\\") and "#" not in above[-1]:
        return True
    try:
        list(tokenize.generate_tokens(io.StringIO("\n".join([*above, ""])).readline))
    except tokenize.TokenError:
        return True
    except (SyntaxError, IndentationError):
        return False
    return False
