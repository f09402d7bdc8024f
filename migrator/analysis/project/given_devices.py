"""Given devices: whether a project's configurations or scripts give a program a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.analysis.devices.given import READERS, names_gpu
from migrator.analysis.project.import_graph import ImportGraph, SearchedFramework
from migrator.formats import file_kinds
from migrator.formats.embedded_text import COMMAND, SETTING

_TRAINER = re.compile(
    rb"""^\s*["']?_target_["']?\s*:\s*["']?(?:pytorch_)?lightning\.[\w.]*\bTrainer\b""",
    re.MULTILINE,
)
_ON_GPU = re.compile(rb"""^\s*["']?accelerator["']?\s*:\s*["']?(?:gpu|cuda)\b""", re.MULTILINE)
_DEEPEST = 5  # folders below the project's
# Libraries that read settings without the program's help, or in formats of their own.
_OTHER_READERS = frozenset({
    "box", "configparser", "detectron2", "draccus", "fvcore", "hjson", "kedro", "ml_collections",
    "pydantic", "pyrallis", "ray", "sacred", "torchtune", "transformers", "trl", "tyro",
    "ultralytics",
})  # fmt: skip


class GivenDevices(ImportGraph):
    """What a program of the project gets from files that aren't code."""

    def imports_gpu_code(self, framework: SearchedFramework | None = None) -> bool:
        if super().imports_gpu_code(framework):
            return True
        return any(self.takes_gpu(framework, path) for path in self.reached())

    def leads_to_gpu(self, framework: SearchedFramework) -> bool:
        """Whether a program gets to a GPU by what it imports, or by what its settings name."""
        return self.takes_gpu(framework) or self.imports_gpu_code(framework)

    def takes_gpu(
        self, framework: SearchedFramework | None = None, path: Path | None = None
    ) -> bool:
        """Whether this file, or one that it imports, asks its settings for a device, and files of
        the project name a GPU there: for a program, what it reads or what starts it."""
        if framework is not None and not framework.normalised:
            return False
        if self._composes_trainer(path or self.path):
            return True
        if not self.cache.file(path or self.path).taken_devices or not self.settings_with_gpu():
            return False
        is_module = not self.cache.file(self.path).has_main_guard and self.importers_above()
        if not is_module and not self.gives_gpu():
            return False
        return any(b"torch" in self.cache.file(p).content for p in (self.path, *self.reached()))

    def gives_gpu(self) -> bool:
        """Whether something gives this program a GPU: a script that starts it, or, if it reads
        settings, a configuration of the project."""
        if self._composes_trainer(self.path):
            return True
        files = (self.path, *self.reached())
        reads = any(READERS & self.cache.file(p).libraries or self.cache.file(p).settings
                    for p in files)  # fmt: skip
        return any(
            self.names_this(path) if file_kinds.line_kind(path) == COMMAND else reads
            for path in self.settings_with_gpu()
        )

    def names_this(self, script: Path) -> bool:
        """Whether a script names this program: `train.py`, `-m pkg.train`, `-m pkg`."""
        name = self.path.stem if self.path.stem != "__main__" else self.path.parent.name
        stem = re.escape(name.encode())
        content = self.reader.read(script) or b""
        return re.search(rb"(?<!\w)%b\.py\b|-m\s+[\w.]*\b%b\b" % (stem, stem), content) is not None

    def settings_with_gpu(self) -> Sequence[Path]:
        """The configurations and scripts of the project that name a GPU as a device, which this
        program takes there."""
        files = (self.path, *self.reached())
        keys = frozenset[str]().union(*(self.cache.file(path).device_keys for path in files))
        known = self.cache.settings_with_gpu.get((self.root, keys))
        if known is None:
            known = self.cache.settings_with_gpu[self.root, keys] = [
                path
                for path in self._settings_of_project()
                if names_gpu(file_kinds.line_kind(path) or "", self.reader.read(path) or b"", keys)
            ]
        return known

    def _composes_trainer(self, path: Path) -> bool:
        """Whether Hydra makes Lightning's Trainer for a GPU for this file."""
        composed = self.cache.file(path).composed
        return bool((composed.folders or composed.is_unknown) and self.trainers_on_gpu())

    def trainers_on_gpu(self) -> Sequence[Path]:
        """The configurations of the project that have Lightning's Trainer made for a GPU."""
        known = self.cache.trainers_on_gpu.get(self.root)
        if known is None:
            known = self.cache.trainers_on_gpu[self.root] = [
                path
                for path in self._settings_of_project()
                if _ON_GPU.search(self.reader.read(path) or b"") and self.is_of_trainer(path)
            ]
        return known

    def is_of_trainer(self, settings: Path) -> bool:
        """Whether a configuration, or another of its folder, names Lightning's Trainer."""
        folder = settings.parent
        group = [folder / n for n in self.reader.list(folder) if n.endswith((".yaml", ".yml"))]
        return any(_TRAINER.search(self.reader.read(path) or b"") for path in (settings, *group))

    def has_reader(self) -> bool:
        """Whether a program of the project may read this configuration, as far as its imports show;
        also where there is no program."""
        known = self.cache.reads_settings.get(self.root)
        modules = [*self.modules_of_project()] if not known else ()
        if known is None:
            known = not modules or any(map(self._may_read, modules))
            self.cache.reads_settings[self.root] = known
        name = self.path.name.encode()
        return known or any(name in self.cache.file(path).content for path in modules)

    def _may_read(self, path: Path) -> bool:
        file = self.cache.file(path)
        return bool((READERS | _OTHER_READERS) & file.libraries or file.taken_devices)

    def is_taken_as_device(self, setting: str) -> bool:
        """Whether a program beside a configuration or above it takes a key for a device."""
        return any(setting in self.cache.file(path).device_keys for path in self.modules_around())

    def _settings_of_project(self) -> Iterator[Path]:
        """Its configurations and scripts, without data, and without what git or tools keep."""
        folders = [(self.root, 0)]
        while folders:
            folder, depth = folders.pop()
            for name in sorted(self.reader.list(folder)):
                path = self.cache.inside(folder, name)
                if file_kinds.line_kind(path) in (SETTING, COMMAND) and not file_kinds.is_data(
                    path
                ):
                    yield path
                elif "." not in name and depth < _DEEPEST:
                    folders.append((path, depth + 1))
