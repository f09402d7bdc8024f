"""What a file imports from its project, as those ask for it who look at one file."""

from __future__ import annotations

import ast
from typing import Protocol

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
    ) -> tuple[Defining, Imported, ast.FunctionDef | ast.ClassDef] | None:
        """The function or class that an imported name is, and the file that has it."""

    def assigned(self, qualname: str) -> tuple[Defining, Imported, ast.expr] | None:
        """What an imported name is bound to, if that happens once, and the file that has it."""

    def taken_names(self) -> frozenset[str]:
        """Names of this file that other files of the project take from it."""
