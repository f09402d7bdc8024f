"""Places: the project files in which programs look up names, each indexed once.

What a use of a name says by itself is kept here, for all programs that the file is a part of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.analysis.devices.machine_conditions import tpu_answer
from migrator.analysis.project.name_index import NameIndex, unit
from migrator.analysis.syntax.conditions import asked_before

if TYPE_CHECKING:
    from migrator.analysis.project.file_facts import File


_TESTS = re.compile(rb"\bdef test|\bpytest\b|\bunittest\b")

Way = tuple[ast.AST, Sequence[tuple[ast.expr, bool]]]


@dataclass(frozen=True, eq=False)
class ProgramPlace:
    """A file of a program."""

    path: Path
    file: File
    foreign: dict[ast.AST, bool] = field(default_factory=dict)  # names of other libraries, if asked
    _uses: dict[str, Sequence[ast.expr | None]] = field(default_factory=dict)
    _ways: dict[ast.AST, Way] = field(default_factory=dict)
    _values: dict[ast.AST, bool] = field(default_factory=dict)
    _answers: dict[ast.expr, bool | None] = field(default_factory=dict)

    @cached_property
    def folder(self) -> Path:
        return self.path.parent

    @cached_property
    def above(self) -> Set[Path]:
        """The folders that contain it."""
        return frozenset(self.path.parents)

    @cached_property
    def module(self) -> str:
        return self.folder.name if self.path.stem == "__init__" else self.path.stem

    @cached_property
    def index(self) -> NameIndex:
        """Its name index; empty if it isn't Python."""
        return self.file.name_index or NameIndex()

    @cached_property
    def may_bring_all(self) -> bool:
        """Whether it may re-export names of modules below it: `from .layers import *`."""
        return self.module == self.folder.name and b"import *" in self.file.content

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        return self.index.parents

    def uses(self, name: str) -> Sequence[ast.expr | None]:
        """Where it uses a name that it contains; None stands for a file that isn't Python."""
        known = self._uses.get(name)
        if known is None:
            there = self.file.name_index
            known = [None]
            if there is not None:
                nodes = (*there.mentions.get(name, ()), *there.texts.get(name, ()))
                known = [node for node in nodes if not _is_asked_for(self.parents, node)]
            self._uses[name] = known
        return known

    def way(self, node: ast.AST) -> Way | None:
        """The unit of a node, and the conditions in it that lead to the node, with the required
        outcomes. None for a node of another text than the file's."""
        known = self._ways.get(node)
        if known is None and node in self.parents:
            within = unit(self.index, node)
            known = self._ways[node] = within, [*asked_before(self.parents, node, within)]
        return known

    def answer(self, test: ast.expr) -> bool | None:
        """How a condition turns out on every TPU machine; None if they don't decide it."""
        if test not in self._answers:
            facts = self.file.facts if self.file.asks_machine else None
            self._answers[test] = tpu_answer(facts.names, test) if facts is not None else None
        return self._answers[test]

    def is_value(self, node: ast.AST) -> bool:
        """Whether a name is used as a value, other than for reading what a module holds."""
        known = self._values.get(node)
        if known is None:
            known = self._values[node] = self._is_value(node)
        return known

    def _is_value(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        match self.parents.get(node):
            case ast.Attribute():
                return False
            case ast.Call(func=func) if func is node:
                return False
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(), *_]):
                return False
        facts = self.file.facts
        if facts is None:
            return True
        meaning = facts.names.qualified(node)
        return meaning is not None and not meaning.startswith("torch.")


# A place where something is used; None stands for a file that isn't Python.
Site = tuple[ProgramPlace, ast.AST | None]


class LookedUpPlaces:
    """The files in which programs were looked up, shared by them."""

    def __init__(self, file: Callable[[Path], File]) -> None:
        self._file = file
        self._by_path: dict[Path, ProgramPlace] = {}
        self._all: list[ProgramPlace] = []
        self._holding: dict[str, tuple[int, set[ProgramPlace]]] = {}
        self._tests: dict[Path, bool] = {}

    def of(self, path: Path) -> ProgramPlace:
        if path not in self._by_path:
            self._by_path[path] = place = ProgramPlace(path, self._file(path))
            self._all.append(place)
        return self._by_path[path]

    def with_word(self, word: str) -> Set[ProgramPlace]:
        """The places so far whose files contain a word."""
        seen, found = self._holding.get(word, (0, set()))
        if seen < len(self._all):
            found.update(place for place in self._all[seen:] if word in place.file.words)
            self._holding[word] = len(self._all), found
        return found

    def is_test(self, path: Path) -> bool:
        """Whether a file contains pytest tests; `test_net.py` may well be a program."""
        known = self._tests.get(path)
        if known is None:
            name = path.stem
            named = name.startswith("test_") or name.endswith("_test") or name == "conftest"
            known = named and _TESTS.search(self._file(path).content) is not None
            self._tests[path] = known
        return known


def _is_asked_for(parents: Mapping[ast.AST, ast.AST], node: ast.AST) -> bool:
    """`isinstance(x, Tool)` creates no Tool, and `name == "work"` doesn't call work."""
    parent = parents.get(node)
    if isinstance(parent, ast.Compare) and isinstance(node, ast.Constant):
        return True
    if isinstance(parent, ast.Tuple):
        node, parent = parent, parents.get(parent)
    match parent:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            return kinds is node
    return False
