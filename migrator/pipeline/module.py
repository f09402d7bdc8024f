"""Read: a module's bytes, as text and as a tree with CUDA's names."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis.devices.other_accelerators import Parsed, parse, parse_as
from migrator.analysis.project.facts import ProjectFacts
from migrator.codes import ENCODING, SYNTAX
from migrator.diagnostics import START, Range
from migrator.formats import python_source
from migrator.pipeline.result import MigrationFailure


@dataclass(frozen=True)
class Module:
    """A Python module, decoded and parsed as GPU code."""

    content: bytes
    source: python_source.SourceText
    parsed: Parsed

    @property
    def tree(self) -> ast.Module:
        return self.parsed.tree

    @property
    def text(self) -> str:
        return self.source.text


def read_module(
    content: bytes, project: ProjectFacts | None = None, accelerator: str | None = None
) -> Module:
    """Decode and parse a module.

    Args:
        project: the facts of its file, which may have been parsed already.
        accelerator: what it runs on, where it is known.

    Raises:
        Failure: it is no Python.
    """
    try:
        source = python_source.decode(content)
        known = project.parsed(content) if project is not None else None
        if known is None and accelerator is None:
            known = parse(source.text, content)
        return Module(content, source, known or parse_as(accelerator or "", source.text))
    except (SyntaxError, ValueError) as error:
        raise not_python(error) from error
    except (RecursionError, MemoryError) as error:
        raise MigrationFailure(SYNTAX, "too deeply nested to be rewritten") from error


def not_python(error: SyntaxError | ValueError) -> MigrationFailure:
    """Why a file can't be decoded or parsed."""
    if not isinstance(error, SyntaxError):
        return MigrationFailure(ENCODING, f"cannot be decoded: {error}")
    where = START
    if error.lineno:
        column = max(error.offset or 1, 1)
        where = Range(error.lineno, column, error.lineno, column)
    known = "; async is a keyword since Python 3.7, and the argument is non_blocking"
    said = known if "async=" in (error.text or "").replace(" ", "") else ""
    return MigrationFailure(SYNTAX, f"not valid Python: {error.msg}{said}", where)
