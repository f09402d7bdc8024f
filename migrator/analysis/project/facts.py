"""Facts: what a rewrite needs to know of a file and the project files that it imports.

`ProjectFacts` follows imports up to the project's root, whatever paths were given on the command
line, so that one file always migrates to the same bytes. It reads through an injected `Reader`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path, PurePosixPath

from migrator.analysis.devices.cuda_kernels import MENTIONED, Kernels
from migrator.analysis.devices.other_accelerators import Parsed
from migrator.analysis.import_verdicts import Verdict, is_known, verdict_of
from migrator.analysis.project.composed_settings import MAY_COMPOSE
from migrator.analysis.project.program_facts import ProgramFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.analysis.project.readers import Overlay, Reader
from migrator.analysis.project.started_scripts import started_by
from migrator.analysis.values.flow import Flow
from migrator.decision import Report
from migrator.formats import file_kinds
from migrator.formats.embedded_text import COMMAND

_SETTINGS = (".yaml", ".yml")
_MACHINES = re.compile(rb"""^\s*runs-on\s*:\s*["']?([^\s"'#]*)""", re.MULTILINE)
_HOSTED = (b"ubuntu-", b"windows-", b"macos-")
# Not 1, and not [0].
_SEVERAL = re.compile(
    r"""^\s*["']?(?:devices|num_nodes)["']?\s*:\s*"""
    r"""(?!["']?(?:1|auto|null)\b|\[\s*0\s*\])\S[^#\n]*""",
    re.MULTILINE,
)


class ProjectFacts(ProgramFacts):
    """Facts of the project files that one file imports, directly or not.

    `root` is the top of the version-controlled tree (or the path that was given). `held` is why
    the file stays as it is with its whole program.
    """

    def __init__(
        self,
        path: Path,
        root: Path,
        reader: Reader,
        cache: ProjectCache,
        held: Report | None = None,
    ) -> None:
        super().__init__(path, root, reader, cache)
        self.held = held

    def with_files(self, files: Mapping[Path, bytes | None]) -> ProjectFacts:
        """The same facts with some files added or replaced."""
        reader = Overlay(self.reader, files)
        cache = ProjectCache(reader, self.cache.devices, self.cache)
        return ProjectFacts(self.path, self.root, reader, cache, self.held)

    def needs_cuda(self, module: str) -> bool:
        """Whether a module of the project can't be imported without a CUDA library."""
        path = self.resolve(module)
        facts = self.cache.facts(path) if path is not None else None
        return facts is not None and facts.needs_cuda

    def compiled(self, modules: Iterable[str]) -> str | None:
        """The first of some imported modules that the project compiles for CUDA; or, in a program
        that uses a device, for nobody knows what."""
        for module in modules:
            verdict = Verdict.OWN if is_known(module) else verdict_of(module, self).verdict
            if verdict is Verdict.EXTENSION:
                return module
            if verdict is Verdict.COMPILED and self._is_of_gpu_program():
                return module
        return None

    def imports_compiled_module(self) -> bool:
        """Whether this file imports such a module."""
        return self.compiled(self.cache.file(self.path).modules) is not None

    def _is_of_gpu_program(self) -> bool:
        return self.uses_device() or self.imports_gpu_code() or self.is_imported_by_gpu_code()

    def kernels(self) -> Kernels | None:
        """The kernels of this file."""
        known = self.cache.kernels
        facts = self.cache.facts(self.path)
        if self.path not in known and facts is not None:
            known[self.path] = Kernels(facts.names, facts.flow, self)
        return known.get(self.path)

    def speaks_of_kernels(self, path: Path) -> bool:
        """A cheap test: False for a file if neither it nor its imports mention kernels."""
        known = self.cache.speaks_of_kernels
        if path not in known:
            files = (path, *self.reached(path))
            known[path] = any(MENTIONED.search(self.reader.read(f) or b"") for f in files)
        return known[path]

    def uses_device(self) -> bool:
        """Whether this file itself uses a device."""
        return self.cache.uses_device(self.path)

    def taken_names(self) -> frozenset[str]:
        """Names in this file that other files of the project import."""
        taken: set[str] = set()
        is_package = self.path.stem == "__init__"
        stem = self.path.parent.name if is_package else self.path.stem
        for importer in self.importers():
            facts = self.cache.facts(importer)
            there = self.of(importer)
            for statement in facts.names.imports if facts is not None else ():
                if isinstance(statement, ast.ImportFrom):
                    module = "." * statement.level + (statement.module or "")
                    if there.resolve(module if module.strip(".") else module + ".") == self.path:
                        taken.update(alias.name for alias in statement.names)
            if facts is not None and stem in facts.names.by_id:  # utils.autocast
                taken.update(facts.names.by_attribute)
        return frozenset(taken)

    def compares_indices(self) -> bool:
        """True if a program that this file is part of, or may configure, compares devices by index.

        A configuration may apply to every program beside it or above it.
        """
        is_code = self.path.suffix in (".py", ".ipynb")
        programs = [self.path, *self.importers_above()] if is_code else self.modules_above()
        files = dict.fromkeys(f for path in programs for f in (path, *self.reached(path)))
        return any(map(self.cache.compares_indices, files))

    def patches(self) -> dict[str, str]:
        """The functions of torch.cuda that another file of its programs replaces, and where."""
        found: dict[str, str] = {}
        for program in (self.path, *self.importers_above()):
            for path in (program, *self.reached(program)):
                if path == self.path or self.cache.places.is_test(path):
                    continue
                for name, node in self.cache.file(path).patches.items():
                    if name not in found and self.of(program).code_reaches(path, node):
                        found[name] = f"line {node.lineno} of {path.name}"
        return found

    def makes_copies(self) -> bool:
        """True if a file that this one imports, directly or not, uses nn.DataParallel."""
        return any(map(self.cache.makes_copies, self.reached()))

    def writes_caches(self) -> bool:
        """True if a file that this one imports has caches that can be written at a tensor index."""
        return any(self.cache.file(path).writes_caches for path in self.reached())

    def divides_models(self) -> bool:
        """True if a file that this one imports moves a model that can be divided."""
        return any(map(self._divides, self.reached()))

    def _divides(self, path: Path) -> bool:
        facts = self.cache.facts(path) if self.cache.uses_device(path) else None
        if facts is None:
            return False
        from migrator.analysis.training.sharding_tables import Models  # only for --shard

        there = self.of(path)
        tables = Models(facts.names, Flow(facts.names, there.kind), there).tables("replicated")
        return any(table is not None and table.rules for table in tables.values())

    def started(self, program: str) -> Path | None:
        """The file that a command in this file starts: `train.py`, from its folder or above."""
        if PurePosixPath(program).is_absolute() or "$" in program:
            return None
        folder = self.path.parent
        while self.reader.read(folder / program) is None:
            if folder == self.root or self.root not in folder.parents:
                return None
            folder = folder.parent
        return folder / program

    def scripts(self) -> Iterator[Path]:
        """The project's scripts that this file starts in processes of their own."""
        file = self.cache.file(self.path)
        is_script = file_kinds.line_kind(self.path) == COMMAND
        text = file.content.decode("utf-8", "replace") if is_script else ""
        for name, is_module in started_by(text) if is_script else file.started:
            path = self.resolve(name) if is_module else self.started(name)
            if path is not None and path != self.path:
                yield path

    def settings(self) -> Iterator[Path]:
        """The project's settings that this file names, or has composed."""
        yield from self.composed()
        for name in self.cache.file(self.path).settings:
            path = self.started(name)
            if path is not None and not file_kinds.is_data(path):
                yield path

    def readers(self) -> Iterator[Path]:
        """The project's files that name these settings, or have them composed."""
        name = self.path.name.encode()
        for path in self.modules_of_project():
            content = self.cache.file(path).content
            if name in content or MAY_COMPOSE.search(content) is not None:
                if self.path in self.of(path).settings():
                    yield path

    def options(self, program: Path) -> set[str]:
        """The command-line options that a program and its imports declare: `--lr`."""
        reached = self.of(program).reached(program)
        return set().union(*(self.cache.file(path).options for path in (program, *reached)))

    def saves_objects_with(self, keys: Set[str]) -> bool:
        """Whether a checkpoint with some of these keys, and with more than tensors, is saved in
        another file beside this one or above it, in `scripts/` beside a package, or below it."""
        found = (*self.modules_around(), *self.reached())
        return any(not keys.isdisjoint(self.cache.file(path).saved_keys) for path in found)

    def configures_lightning(self) -> bool:
        """Whether a configuration is that of Lightning's Trainer: it is named here, or in another
        file of the folder, as in a group of Hydra's, or LightningCLI reads it."""
        if self.is_of_trainer(self.path):
            return True
        has_trainer = re.search(rb"^trainer:", self.reader.read(self.path) or b"", re.MULTILINE)
        programs = self.modules_around() if has_trainer else ()
        return any(b"LightningCLI" in self.cache.file(path).content for path in programs)

    def lightning_devices(self) -> str | None:
        """The line of a configuration for Lightning that asks for several devices."""
        found = _SEVERAL.search((self.reader.read(self.path) or b"").decode("utf-8", "replace"))
        return found[0].strip() if found is not None else None

    def holds_setting(self, group: str, name: str) -> bool:
        """Whether there is a configuration in a group: `trainer/gpu.yaml`, beside or above."""
        path = PurePosixPath(group.lstrip("/"), name)
        files = {f"{path.name}{end}" for end in _SETTINGS}
        return any(
            not files.isdisjoint(self.reader.list(folder / path.parent))
            for folder in self._folders_above()
        )

    def is_hosted(self) -> bool:
        """Whether this is a workflow for machines of GitHub's own, which have no TPU."""
        if self.path.parts[-3:-1] != (".github", "workflows"):
            return False
        machines = _MACHINES.findall(self.reader.read(self.path) or b"")
        return bool(machines) and all(each.startswith(_HOSTED) for each in machines)

    def parsed(self, source: bytes) -> Parsed | None:
        """This file as already parsed, if the content is the same."""
        file = self.cache.file(self.path)
        return file.parsed if file.content == source else None

    def stays(self, program: str) -> bool:
        """Whether a program that a command in this file starts stays as it is."""
        path = self.started(program)
        return path is not None and path in self.cache.staying
