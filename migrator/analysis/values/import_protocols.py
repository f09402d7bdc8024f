"""Interfaces to the imports of a file from its project, for analyses of a single file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

from migrator.analysis.syntax.names import Names
from migrator.analysis.values.flow import Flow


class Defining(Protocol):
    """A file that defines something."""

    @property
    def names(self) -> Names: ...

    @property
    def flow(self) -> Flow: ...


class Imported(Protocol):
    """The definitions of a project, as one of its files names them."""

    @property
    def path(self) -> Path:
        """That file."""

    def uses_device(self) -> bool:
        """Whether that file itself uses a device."""

    def definition(
        self, qualname: str
    ) -> tuple[Defining, Self, ast.FunctionDef | ast.ClassDef] | None:
        """The definition of an imported function or class, and its file."""

    def assigned(self, qualname: str) -> tuple[Defining, Self, ast.expr] | None:
        """The value of an imported name that is bound once, and its file."""

    def taken_names(self) -> frozenset[str]:
        """The names of this file that other files of the project import."""

    def defining(self, attribute: str) -> Iterator[tuple[Path, Defining]]:
        """The files that this one imports, directly or not, with a class with this attribute."""


class ValueProgram(Imported, Protocol):
    """What the values of a file depend on in the rest of the project."""

    def resolve(self, module: str) -> Path | None:
        """The file of the project that a module name refers to, as imported from this file."""

    def holds(self, qualname: str) -> bool:
        """Whether a qualified name begins with a module of the project."""

    def modules_of_programs(self) -> Iterator[str]:
        """This file's imports, the files it reaches, and the files that import it."""

    def naming(self, word: str) -> Iterator[Defining]:
        """The files that this one imports, directly or not, and whose text contains a word."""
