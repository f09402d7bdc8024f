"""Places: the project files in which programs look up names, each indexed once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.analysis.project.name_index import NameIndex

if TYPE_CHECKING:
    from migrator.analysis.project.file_facts import File


@dataclass(frozen=True, eq=False)
class Place:
    """A file of a program."""

    path: Path
    file: File

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

    @property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        return self.index.parents


class Places:
    """The files in which programs were looked up, shared by them."""

    def __init__(self, file: Callable[[Path], File]) -> None:
        self._file = file
        self._by_path: dict[Path, Place] = {}
        self._all: list[Place] = []
        self._holding: dict[str, tuple[int, set[Place]]] = {}

    def of(self, path: Path) -> Place:
        if path not in self._by_path:
            self._by_path[path] = place = Place(path, self._file(path))
            self._all.append(place)
        return self._by_path[path]

    def with_word(self, word: str) -> Set[Place]:
        """The places so far whose files contain a word."""
        seen, found = self._holding.get(word, (0, set()))
        found.update(place for place in self._all[seen:] if word in place.file.words)
        self._holding[word] = len(self._all), found
        return found
