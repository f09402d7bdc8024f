"""A script of a user, and the folder that it is copied with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import VerifyError
from .folders import check_size, copy_folder


@dataclass(frozen=True)
class Script:
    """A script and the folder that it is copied with."""

    folder: Path
    entry: str
    args: Sequence[str]
    module: str | None = None  # run as `python -m` does

    @property
    def name(self) -> str:
        """As one names it to Python."""
        return f"-m {self.module}" if self.module else self.entry

    @classmethod
    def find(cls, script: Path, args: Sequence[str], module: bool = False) -> Script:
        """In the current folder, or in its own where it lies elsewhere.

        ``module``: ``script`` is the name of a module there. Raises VerifyError where it is not
        there, or where the folder is too much to copy.
        """
        file, name = script.absolute(), str(script) if module else None
        if name is not None:
            base = Path.cwd().joinpath(*name.split("."))
            file = base / "__main__.py" if base.is_dir() else base.with_name(f"{base.name}.py")
            if not file.is_file():
                raise VerifyError(f"no such module in the current folder (no {file})")
        if not file.is_file():
            raise VerifyError("no such file")
        folder = Path.cwd() if Path.cwd() in file.parents else file.parent
        check_size(folder)
        return cls(folder, file.relative_to(folder).as_posix(), list(args), name)

    def copy(self, to: Path, *without: Path | None) -> Path:
        """A copy to run in, so that nothing of the user's is written over."""
        return copy_folder(self.folder, to, [path for path in without if path is not None])
