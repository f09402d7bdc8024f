"""Readers: where the content of a project's files comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Reader(Protocol):
    """A source for the content of other files."""

    def read(self, path: Path) -> bytes | None:
        """The content of a file, None if there is none or it can't be read."""

    def list(self, folder: Path) -> frozenset[str]:
        """Names in a folder, empty if there is none."""


@dataclass(frozen=True)
class Overlay:
    """A reader with other content for some files."""

    below: Reader
    files: Mapping[Path, bytes | None]
    _listed: dict[Path, frozenset[str]] = field(default_factory=dict, init=False, repr=False)

    def read(self, path: Path) -> bytes | None:
        return self.files[path] if path in self.files else self.below.read(path)

    def list(self, folder: Path) -> frozenset[str]:
        if folder not in self._listed:
            ways = (path.relative_to(folder).parts for path in self.files if folder in path.parents)
            self._listed[folder] = self.below.list(folder).union(way[0] for way in ways)
        return self._listed[folder]
