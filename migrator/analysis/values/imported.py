"""What a file imports from its project, as those ask for it who look at one file."""

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

    def definition(
        self, qualname: str
    ) -> tuple[Defining, Self, ast.FunctionDef | ast.ClassDef] | None:
        """The function or class that an imported name is, and the file that has it."""

    def assigned(self, qualname: str) -> tuple[Defining, Self, ast.expr] | None:
        """What an imported name is bound to, if that happens once, and the file that has it."""

    def taken_names(self) -> frozenset[str]:
        """Names of this file that other files of the project take from it."""


class Program(Imported, Protocol):
    """What of a project bears on the values of one of its files."""

    def resolve(self, module: str) -> Path | None:
        """The file of the project that a module is, as this file imports it."""

    def holds(self, qualname: str) -> bool:
        """Whether a file of the project is what a qualified name begins with."""

    def modules_of_programs(self) -> Iterator[str]:
        """What this file imports, the files that it gets to and those that import it."""

    def naming(self, word: str) -> Iterator[Defining]:
        """The files that this one imports, directly or not, with a word in their text."""

    def defining(self, attribute: str) -> Iterator[tuple[Path, Defining]]:
        """Those with a class that has an attribute."""
