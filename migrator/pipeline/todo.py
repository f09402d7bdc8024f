"""Comments in the code for remaining work: `# TPU-TODO[CODE]: reason` above the statement.

They are separate lines, inserted and removed as text, so everything around them stays byte for
byte. A line only gets one where it is certain to be read as a comment.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.analysis.gpu_text_patterns import without_comment
from migrator.diagnostics import Diagnostic, Outcome, SourceMap
from migrator.files.discover import TODO
from migrator.formats import file_kinds, python_source
from migrator.formats.embedded_text import COMMAND, FILE, OTHER, SETTING

if TYPE_CHECKING:
    from migrator.formats import notebook

_OURS = re.compile(r"[ \t]*# TPU-TODO\[[^\]\s]+\]: \S")


def add(path: Path, content: bytes, found: Iterable[Diagnostic]) -> bytes:
    """Remove old comments of this kind, and put one above each statement with a report."""
    left = [d for d in found if d.outcome is Outcome.REPORTED]
    file = _read_file(path, content) if left else None
    if file is None:
        return content
    sources = {}
    for cell, part in file.parts.items():
        here = [d for d in left if d.range.cell == cell]
        sources[cell] = part.with_comments(here, file.encoding)
    return file.write(sources)


def strip(path: Path, content: bytes) -> bytes:
    """Remove these comments from a file."""
    if TODO.search(content) is None:
        return content
    file = _read_file(path, content)
    if file is None:
        return content
    return file.write({cell: part.without_comments() for cell, part in file.parts.items()})


# ---- one piece of text -----------------------------------------------------------------------


@dataclass(frozen=True)
class _SourcePart:
    """The text of a file, or of a cell."""

    lines: list[str]  # with line ends
    above: Mapping[int, int]  # the line above which a comment about a line goes
    ours: Set[int]  # lines that are such comments

    def without_comments(self) -> str:
        return "".join(line for n, line in enumerate(self.lines, 1) if n not in self.ours)

    def with_comments(self, found: Iterable[Diagnostic], encoding: str) -> str:
        comments: dict[int, dict[str, None]] = {}
        for diagnostic in found:
            at = self.above.get(diagnostic.range.line)
            if at is not None:
                text = f"# TPU-TODO[{diagnostic.code}]: {_reason(diagnostic.message)}"
                text = text.encode(encoding, "replace").decode(encoding)
                comments.setdefault(at, {})[text] = None
        result = []
        for number, line in enumerate(self.lines, 1):
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            end = _end(line) or _end(self.lines[0]) or "\n"
            result += [f"{indent}{text}{end}" for text in comments.get(number, ())]
            result.append(line)
        return "".join(result)


def _end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _reason(message: str) -> str:
    """The reason on one line, without line numbers, which change when comments are inserted."""
    text = re.sub(r" \((?:cell \d+, )?line \d+\)", "", message)
    text = re.sub(r"(\([^()]*), line \d+(?=[,)])", r"\1", text)
    text = re.sub(r"\b(?:cell \d+, )?line \d+\b", "another line", text)
    return " ".join(text.split())


# ---- files -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file's texts by cell (0: not a notebook), and the file with other texts."""

    parts: Mapping[int, _SourcePart]
    encoding: str = "utf-8"
    source: python_source.SourceText | None = None
    book: notebook.Notebook | None = None

    def write(self, texts: Mapping[int, str]) -> bytes:
        if self.book is not None:
            return self.book.with_sources(texts).encode()
        if self.source is not None:
            return self.source.encode(texts[0])
        return texts[0].encode(self.encoding)


def _read_file(path: Path, content: bytes) -> _File | None:
    """The file; None if it can't be read, since then it has no such comments."""
    from migrator.formats import lines, notebook  # most files are neither

    function = file_kinds.line_kind(path)
    if file_kinds.is_notebook(path):
        try:
            book = notebook.read_notebook(content)
        except notebook.NotANotebook:
            return None
        return _File({cell.number: _cell_part(cell) for cell in book.cells}, book=book)
    if function is not None:
        try:
            entries = lines.read_lines(content, function).lines
        except UnicodeDecodeError:
            return None
        return _File({0: _lines_part(entries, function, path.suffix)})
    try:
        source = python_source.decode(content)
    except (SyntaxError, UnicodeDecodeError):
        source = python_source.SourceText(content.decode("latin-1"), "latin-1", bom=False)
    text = SourceMap(source.text).lines
    return _File({0: _SourcePart(text, *_statements(source.text))}, source.encoding, source)


def _cell_part(cell: notebook.Cell) -> _SourcePart:
    text = re.findall(r"[^\n]*\n|[^\n]+", cell.source)
    if cell.code.startswith(f"{OTHER}("):
        ours = {n for n, line in enumerate(text, 1) if _OURS.match(line)}
        return _SourcePart(text, {}, set() if cell.source.lstrip().startswith("%%") else ours)
    if cell.code.startswith(f"{FILE}("):  # %%writefile x.py
        magic, _, body = cell.source.partition("\n")
        is_python = magic.rstrip().endswith(".py")
        return _SourcePart(text, *(_statements(f"\n{body}") if is_python else ({}, set())))
    if cell.is_script:
        return _SourcePart(text, {}, set())
    above, ours = _statements(cell.code.replace("\r", ""))
    return _SourcePart(
        text,
        {
            cell.lines[n - 1]: cell.lines[at - 1]
            for n, at in above.items()
            if not text[cell.lines[at - 1] - 1].startswith("%%")  # nothing may go above these
        },
        {cell.lines[n - 1] for n in ours},
    )


# ---- Python ----------------------------------------------------------------------------------

_SILENT = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def _statements(code: str) -> tuple[dict[int, int], set[int]]:
    """For each line of a statement, the statement's first line (or decorator); and these comments.

    `elif`, `else`, `except` and `case` count as statements here.
    """
    above: dict[int, int] = {}
    ours: set[int] = set()
    text = code.replace("\r\n", "\n").replace("\r", "\n")
    plain = text.split("\n")
    first = decorator = last = 0
    is_decorator = False
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            row, column = token.start
            last = token.end[0]
            if token.type == tokenize.COMMENT:
                if _OURS.match(plain[row - 1]) and not plain[row - 1][:column].strip():
                    ours.add(row)
            elif token.type == tokenize.NEWLINE:
                top = decorator or first
                above.update((n, top) for n in range(first, row + 1))
                decorator = top if is_decorator else 0
                first = 0
            elif not first and token.type not in _SILENT:
                first, is_decorator = row, token.string == "@"
                while first > 1 and plain[first - 2].strip() == "\\":
                    first -= 1
    except (tokenize.TokenError, SyntaxError, ValueError):
        # Not Python beyond this point: no comments are added, but some may be there.
        ours.update(n for n, line in enumerate(plain, 1) if n > last and _OURS.match(line))
    return above, ours


# ---- shell scripts, requirements, configurations -----------------------------------------------


def _lines_part(entries: Sequence[str], function: str, suffix: str) -> _SourcePart:
    text: list[str] = []
    above: dict[int, int] = {}
    ours: set[int] = set()
    for entry, free in zip(entries, _free(entries, function, suffix), strict=True):
        here = len(text) + 1
        if free:
            above[here] = here
            if _OURS.match(entry):
                ours.add(here)
        text += [f"{line}\n" for line in entry.split("\n")]
    text[-1] = text[-1].removesuffix("\n")
    return _SourcePart(text, above, ours)


def _free(entries: Sequence[str], function: str, suffix: str) -> Iterable[bool]:
    """For each entry, whether a line above it that begins with `#` is certain to be a comment."""
    if suffix == ".json":
        return [False] * len(entries)
    if function == SETTING:
        return _free_in_yaml(entries)
    return _free_in_shell(entries) if function == COMMAND else [True] * len(entries)


_WORDS = re.compile(
    r"""\\. | '[^']*' | "(?:[^"\\]|\\.)*" | (?<![^\s;&|(])\#[^\n]* | <<<? | \$?['"] | .""",
    re.DOTALL | re.VERBOSE,
)


def _free_in_shell(entries: Sequence[str]) -> Iterator[bool]:
    """False inside of quotes and here-documents."""
    begun = ""
    for entry in entries:
        yield not begun
        begun = "" if _is_whole(begun + entry) else f"{begun}{entry}\n"


def _is_whole(text: str) -> bool:
    if not re.search(r"['`\\#<\n]", text):  # quotes may be nested: `"$(dirname "$0")"`
        if text.count('"') % 2 == 0 and text.count("(") == text.count(")"):
            return True
    for match in _WORDS.finditer(text):
        word = match[0]
        if word in ("'", '"', "<<", "$'", '$"'):
            return False
        if word[0] == '"' and (word.count("(") != word.count(")") or word.count("`") % 2):
            return False
    return True


_BLOCK = re.compile(r"(?:^|[\s:-])[|>][-+\d]*\s*\Z")


def _free_in_yaml(entries: Sequence[str]) -> Iterator[bool]:
    """False inside of block scalars, and below strings that may span several lines."""
    block: int | None = None  # indentation of the line that a block scalar belongs to
    for number, entry in enumerate(entries):
        indent = len(entry) - len(entry.lstrip())
        if block is not None and entry.strip() and indent <= block:
            block = None
        yield block is None
        if block is None:
            said = without_comment(entry)
            if any(said.count(quote) % 2 for quote in "\"'"):
                yield from [False] * (len(entries) - number - 1)
                return
            block = indent if _BLOCK.search(said) else None
