"""A user's script, and the folder that is copied with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.analysis.project.search_path import added
from migrator.files.discover import Disk
from migrator.files.user_folders import meant_instead
from migrator.frameworks import find_framework, imported_in
from migrator.frameworks.framework import Framework
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS
from migrator.targets import Target

from .folders import check_size, copy_folder
from .script_ranks import StartedRanks, find_ranks
from .verify_errors import VerifyError

_GPU = re.compile(r"(--?[\w-]+=)?cuda(:\d+)?")  # in an argument of a program


@dataclass(frozen=True)
class Script:
    """A script and the folder that it is copied with."""

    folder: Path
    entry: str  # in the folder it starts in
    args: Sequence[str]
    module: str | None = None  # run like `python -m`
    ranks: StartedRanks | None = None  # if it has several
    start: str = ""  # the folder it starts in, relative to the copied one
    framework: Framework = field(default_factory=lambda: find_framework("torch"))
    environment: Mapping[str, str] = field(default_factory=dict)  # of the original

    @property
    def name(self) -> str:
        """Its name for Python."""
        return f"-m {self.module}" if self.module else self.entry

    @property
    def file(self) -> Path:
        """The file in the copied folder."""
        return Path(self.start, self.entry)

    @classmethod
    def find(
        cls, script: Path, args: Sequence[str], module: bool = False, devices: int | None = None
    ) -> Script:
        """In the current folder, or in its own where it lies elsewhere.

        The folder above it is copied, too, where the script has put it on `sys.path` and imports
        something from there. ``module``: ``script`` is the name of a module there. ``devices``: how
        many it has. Raises VerifyError where it is not there, or where the folder is too much to
        copy.
        """
        file, name = script.absolute(), str(script) if module else None
        if name is not None:
            base = Path.cwd().joinpath(*name.split("."))
            file = base / "__main__.py" if base.is_dir() else base.with_name(f"{base.name}.py")
            if not file.is_file():
                raise VerifyError(f"no such module in the current folder (no {file})")
        if not file.is_file():
            raise VerifyError(f"no such file{meant_instead(script)}")
        folder = Path.cwd() if Path.cwd() in file.parents else file.parent
        check_size(folder)
        whole, entry = _with_modules(file, folder), file.relative_to(folder).as_posix()
        start = folder.relative_to(whole).as_posix() if whole != folder else ""
        ranks = find_ranks(file, whole, devices)
        return cls(whole, entry, list(args), name, ranks, start, imported_in(file.read_bytes()))

    def copy(self, to: Path, *without: Path | None) -> Path:
        """A copy to run in, so that the user's files stay unchanged."""
        return copy_folder(self.folder, to, [path for path in without if path is not None])


def _with_modules(file: Path, folder: Path) -> Path:
    """The folder above ``folder`` from which a script imports modules; otherwise ``folder``
    itself."""
    reader = Disk({})
    cache = ProjectCache(reader, DEVICE_CONSTRUCTS)
    facts = cache.facts(file)
    if facts is None:
        return folder
    paths = (Path(os.path.normpath(folder / path)) for _, _, path in added(facts.names, file))
    above = sorted({path for path in paths if path in folder.parents}, key=lambda p: -len(p.parts))
    for whole in above:
        reached = ProjectFacts(file, whole, reader, cache).reached()
        if any(folder not in path.parents for path in reached):
            with suppress(VerifyError):
                check_size(whole)
                return whole
    return folder


def translated(argument: str, target: Target) -> str:
    """An argument that names a device (`--device cuda`), translated for the migrated program."""
    found = _GPU.fullmatch(argument)
    return f"{found[1] or ''}{target.api.device}" if found else argument
