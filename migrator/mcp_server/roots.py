"""The folders that an agent may use: a path that leads out of them is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from migrator.config import Config, common, load
from migrator.errors import UsageError


class Roots:
    """Folders, by their real paths. What a path means is decided once links are followed."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = [folder.resolve() for folder in folders]

    def holds(self, path: Path) -> bool:
        real = path.resolve()
        return any(real == folder or folder in real.parents for folder in self.folders)

    def find(self, path: str) -> Path:
        """A path inside of the roots; relative ones begin at the first root that has them.

        Raises:
            UsageError: it leads out of the roots, by itself or by a link, or does not exist.
        """
        begins = [folder / path for folder in self.folders]
        found = self._inside(path, next((each for each in begins if each.exists()), begins[0]))
        if not found.exists():
            raise UsageError(f"{path}: no such file or folder in {self}")
        return found

    def find_new(self, path: str, beside: Path) -> Path:
        """A path that need not exist; a relative one begins at a folder. Raises as `find` does."""
        return self._inside(path, beside / path)

    def _inside(self, path: str, found: Path) -> Path:
        if not self.holds(found):
            raise UsageError(f"{path}: outside of the roots ({self})")
        return found.resolve()

    def find_all(self, paths: Sequence[str]) -> list[Path]:
        if not paths:
            raise UsageError("no path given: name files or folders")
        return [self.find(path) for path in paths]

    def root_of(self, path: Path) -> Path:
        """The innermost root that holds a path."""
        holding = [folder for folder in self.folders if path == folder or folder in path.parents]
        return max(holding, key=lambda folder: len(folder.parts))

    def check(self, paths: Iterable[Path]) -> None:
        """Raise UsageError where what a program imports lies outside: it is not shown."""
        for path in paths:
            if not self.holds(path):
                raise UsageError(
                    f"a program there imports files outside of the roots ({self}): start the "
                    "server with a --root that holds all of it"
                )

    def config(self, paths: Sequence[Path]) -> Config:
        """The configuration around paths, if it lies inside."""
        found = load(common(paths))
        return found if found.folder is None or self.holds(found.folder) else Config()

    def __str__(self) -> str:
        return ", ".join(map(str, self.folders))
