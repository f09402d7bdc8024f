"""The project cache: what is known of a project's files, shared by all files of one run."""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrator.analysis.project.file_facts import DeviceConstructs, File, FileFacts
from migrator.analysis.project.looked_up_files import LookedUpPlaces
from migrator.analysis.project.readers import Reader
from migrator.analysis.ranks.file_ranks import Ranks

if TYPE_CHECKING:
    from migrator.analysis.devices.cuda_kernels import Kernels
    from migrator.analysis.project.extension_module import Extension
    from migrator.analysis.project.reachability import Reach


class ProjectCache:
    """What is known of the project's files, shared by all files of one run.

    Results of an `earlier` run for files that haven't changed are reused.
    """

    def __init__(
        self, reader: Reader, devices: DeviceConstructs, earlier: ProjectCache | None = None
    ) -> None:
        self.reader, self.devices = reader, devices
        self._read: dict[Path, File] = dict(earlier._read) if earlier is not None else {}
        self._files: dict[Path, File] = {}
        self._inside: dict[Path, dict[str, Path]] = {}
        self.places = LookedUpPlaces(self.file)
        self.imports: dict[Path, list[Path]] = {}
        self.composed: dict[Path, list[Path]] = {}
        self.named_by_settings: set[Path] = set()
        self.added: dict[Path, tuple[list[Path], list[Path]]] = {}
        self.bases: dict[Path, list[Path]] = {}
        self.usual_bases: dict[Path, list[Path]] = {}  # by folder
        self.started: dict[tuple[Path, Path], bool] = {}  # and its project's root
        self.installed: dict[Path, Set[Path]] = {}
        self.trainers_on_gpu: dict[Path, Sequence[Path]] = {}  # by the project's root
        # by the project's root, and other keys that are devices
        self.settings_with_gpu: dict[tuple[Path, Set[str]], Sequence[Path]] = {}
        self.reads_settings: dict[Path, bool] = {}  # by the project's root
        self.reached: dict[Path, Set[Path]] = {}
        self.kernels: dict[Path, Kernels] = {}
        self.speaks_of_kernels: dict[Path, bool] = {}
        self.of_framework: dict[Path, Any] = {}  # what a framework keeps about a file
        self.last: object = None  # the facts of the module that was migrated last
        self.importers: dict[Path, list[Path]] = {}
        self.imported_beside: dict[Path, Set[Path]] = {}  # by folder
        self.extensions: dict[Path, Sequence[Extension]] = {}  # by the project's root
        self.folders_in: dict[Path, list[Path]] = {}  # by folder
        self.modules_in: dict[Path, list[Path]] = {}  # by folder
        self.modules_around: dict[Path, list[Path]] = {}  # by folder
        self.reaching: dict[Path, list[tuple[Path, Set[Path]]]] = {}  # by folder
        # Of programs for several devices, by one of their files, or for all:
        self.files_with_ranks: dict[Path, Sequence[Path]] = {}
        self.programs: dict[tuple[Path, bool], dict[Path, Ranks]] = {}
        self._ranks: dict[bool, dict[Path, Ranks | None]] = {False: {}, True: {}}
        self.obstacles: dict[Path, tuple[int, str] | None] = {}
        self.only_infer: dict[frozenset[Path], bool] = {}
        self.reaches: dict[frozenset[Path], Reach] = {}
        self.last_reaches: tuple[Path, Reach, Reach] | None = None  # of a file's programs
        self.staying: Set[Path] = frozenset()  # programs that stay as they are, once it is known
        self.never_called: dict[tuple[Path, str], bool] = {}
        self.code_reaches: dict[Path, Reach] = {}

    def file(self, path: Path) -> File:
        """A file as read; one that can't be read is empty."""
        known = self._files.get(path)
        if known is None:
            content = self.reader.read(path) or b""
            known = self._read.get(path)
            if known is None or known.content != content:
                known = self._read[path] = File(content, self.devices)
            self._files[path] = known
        return known

    def inside(self, folder: Path, name: str) -> Path:
        """`folder / name`, always the same object: to make and to compare paths is slow."""
        folders = self._inside.get(folder)
        if folders is None:
            folders = self._inside[folder] = {}
        known = folders.get(name)
        if known is None:
            known = folders[name] = folder / name
        return known

    def facts(self, path: Path) -> FileFacts | None:
        return self.file(path).facts

    def ranks(self, path: Path, in_one_process: bool) -> Ranks | None:
        """The ranks of a file that may concern them; `in_one_process`, if one does all's work."""
        known = self._ranks[in_one_process]
        if path not in known:
            file = self.file(path)
            speaks = file.speaks_of_ranks if in_one_process else file.speaks_of_processes
            known[path] = file.facts.ranks if speaks and file.facts is not None else None
        return known[path]

    def distributes(self, path: Path) -> bool:
        return self.file(path).distributes

    def compares_indices(self, path: Path) -> bool:
        return self.file(path).compares_indices

    def makes_copies(self, path: Path) -> bool:
        return self.file(path).makes_copies

    def takes_part(self, path: Path) -> bool:
        return self.file(path).takes_part

    def speaks_of_ranks(self, path: Path) -> bool:
        return self.file(path).speaks_of_ranks

    def uses_device(self, path: Path) -> bool:
        return self.file(path).uses_device
