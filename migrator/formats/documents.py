"""Non-Python files: their contents as modules, and the file rebuilt from changed modules.

A notebook contains the module of its cells and the files that its cells write; a shell script, a
list of requirements or a configuration contains its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.diagnostics import START, Diagnostic, Range
from migrator.formats import file_kinds, lines, manifest, notebook
from migrator.formats.embedded_text import COMMAND, SETTING, Document

Settings = Callable[[bytes], bool]
MARK = b"tpu-migrate:"  # in comments for this tool, which may concern nothing
_LINE = re.compile(r"(?<!\.py, )\bline (\d+)\b")  # not of another file


@dataclass(frozen=True)
class Part:
    """A module inside a file."""

    source: bytes
    place: Callable[[Range], Range]  # maps a range of the module to the file
    written: notebook.Written | None = None  # the file that contains it, if a cell writes that file
    inner: Document | None = None  # the contents of that file, if it isn't Python

    def diagnostic(self, found: Diagnostic) -> Diagnostic:
        """A diagnostic with positions in the file instead of the module."""
        message = _LINE.sub(self._line, found.message.replace(f"{COMMAND}()", "a command"))
        touched = tuple(map(self.place, found.touched))
        return replace(found, range=self.place(found.range), message=message, touched=touched)

    def _line(self, match: re.Match[str]) -> str:
        number = int(match[1])
        where = self.place(replace(START, line=number, end_line=number))
        return f"cell {where.cell}, line {where.line}" if where.cell else f"line {where.line}"


@dataclass(frozen=True)
class Holder:
    """A file that isn't a module, and the modules that it contains: its own first."""

    document: Document
    parts: Sequence[Part]

    @property
    def files(self) -> dict[str, bytes]:
        """The files that its cells write, by name relative to its folder."""
        files = self.document.files if isinstance(self.document, notebook.Notebook) else ()
        return {file.name: file.text.encode() for file in files}

    def with_sources(self, sources: Sequence[bytes]) -> bytes:
        """The file with changed modules.

        Raises ValueError if a piece of one is missing.
        """
        module, *written = (source.decode() for source in sources)
        for part, text in zip(self.parts[1:], written, strict=True):
            assert part.written is not None
            whole = text if part.inner is None else part.inner.with_module(text)
            module = part.written.replaced(module, whole)
        return self.document.with_module(module).encode()


def read_document(
    path: Path, content: bytes, says: lines.Says, has_settings: Settings, *, for_tpu: bool = True
) -> Holder | None:
    """The contents of a file that isn't a module; None if it ``says`` nothing about GPUs.

    ``has_settings`` is a cheap test of a whole configuration, False where it has none for GPUs.

    Raises:
        NotANotebook: it cannot be read as one.
        UnicodeDecodeError: it is not in UTF-8.
    """
    document = _document(path, content, says, has_settings, for_tpu=for_tpu)
    if document is None:
        return None
    if isinstance(document, lines.Lines) and not any(document.functions) and MARK not in content:
        return None
    parts = [Part(document.module.encode(), document.located)]
    for file in document.files if isinstance(document, notebook.Notebook) else ():
        text = file.text.encode()
        if file_kinds.is_module(Path(file.name)):
            parts.append(Part(text, file.located, file))
        elif inner := _document(path.parent / file.name, text, says, has_settings):
            parts.append(Part(inner.module.encode(), _within(file, inner), file, inner))
    return Holder(document, parts)


def _within(file: notebook.Written, inner: Document) -> Callable[[Range], Range]:
    return lambda where: file.located(inner.located(where))


def _document(
    path: Path, content: bytes, says: lines.Says, has_settings: Settings, *, for_tpu: bool = True
) -> Document | None:
    function = file_kinds.line_kind(path)
    if function is None:
        return (
            notebook.read_notebook(content, for_tpu=for_tpu)
            if file_kinds.is_notebook(path)
            else None
        )
    listing = manifest.read(path, content)
    if listing is not None:
        return listing
    if function == SETTING and not has_settings(content):
        return None
    return lines.read_lines(content, function, says)
