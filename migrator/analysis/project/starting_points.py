"""Starting points: what starts a file, and the folder in which its imports are found then."""

from __future__ import annotations

import re
from collections.abc import Set
from itertools import chain
from pathlib import Path

from migrator.analysis.devices import serving_frameworks
from migrator.analysis.devices.other_accelerators import imported_heads
from migrator.analysis.project import packaged_commands, search_path
from migrator.analysis.project.file_facts import File
from migrator.analysis.project.given_devices import GivenDevices
from migrator.analysis.project.import_graph import SearchedFramework
from migrator.analysis.syntax.scripts import is_script_of
from migrator.targets import RUNTIME

_TEXTS = (".md", ".rst", ".sh", ".slurm", ".sbatch", ".toml", ".yaml", ".yml")  # not data


class StartingPoints(GivenDevices):
    """How one file is started, or the programs that import it."""

    def may_start_gpu_code(self, source: bytes, framework: SearchedFramework) -> bool:
        """A cheap test for files without any GPU words: a script that imports GPU modules."""
        if b"import" not in source:
            return False
        file = self.cache.file(self.path)
        is_started = self.is_started() or file.has(serving_frameworks.TOKENS)
        is_module = not is_started and (file.is_of_package or self.is_imported())
        if is_module and not file.may_have_main_guard:
            return False
        if not self.leads_to_gpu(framework):
            return False
        return is_started or file.has_main_guard or (not is_module and self._acts())

    def _acts(self) -> bool:
        """Whether it does something when it is loaded."""
        tree = self.cache.file(self.path).tree
        return tree is not None and is_script_of(tree, relative=False) is None

    def has_main_guard(self) -> bool:
        return self.cache.file(self.path).has_main_guard

    def is_started(self) -> bool:
        """True if `python -m package` starts it, a command that the project installs, or a
        framework that loads it."""
        key = self.path, self.root
        known = self.cache.started.get(key)
        if known is None:
            known = self.cache.started[key] = self._is_started()
        return known

    def _is_started(self) -> bool:
        if self.path.name == "__main__.py" or self._is_loaded():
            return True
        if self.path.name == "__init__.py":
            return False  # otherwise importing the package would start it
        folder = self.path.parent
        while self.path not in self._installed(folder):
            if folder == self.root or self.root not in folder.parents:
                return False
            folder = folder.parent
        return True

    def _is_loaded(self) -> bool:
        """Whether a framework loads it; an application that a program imports is that program's."""
        facts = (
            self.cache.facts(self.path)
            if self.cache.file(self.path).has(serving_frameworks.TOKENS)
            else None
        )
        if facts is None:
            return False
        return serving_frameworks.is_loaded(facts.names) or (
            serving_frameworks.holds_application(facts.names)
            and not any(self.cache.file(path).has_main_guard for path in self.importers_above())
        )

    def _installed(self, folder: Path) -> Set[Path]:
        """The modules for which the packaging in a folder installs commands."""
        known = self.cache.installed.get(folder)
        if known is None:
            files = (
                name for name in packaged_commands.PACKAGING if name in self.reader.list(folder)
            )
            content = {name: self.reader.read(folder / name) or b"" for name in files}
            here = self.of(folder / "setup.py")
            found = (here.resolve(module) for module in packaged_commands.commands(content))
            known = self.cache.installed[folder] = {path for path in found if path is not None}
        return known

    def is_imported(self) -> bool:
        """True if a file beside this one imports it, or one above it, directly or not."""
        folder = self.path.parent
        known = self.cache.imported_beside.get(folder)
        if known is None:
            known = {
                path
                for other in self._modules_in(folder)
                for path in self.imports(other)
                if path != other
            }
            self.cache.imported_beside[folder] = known
        return self.path in known or bool(self.importers_above())

    def import_root(self, migrated: bytes = b"") -> Path:
        """The folder on `sys.path` where imports of this file, once `migrated`, are found.

        For a module, the folder of the program that imports it; for a program, the folder in which
        its own project imports are found, if it is on `sys.path` when the runtime is imported. The
        program itself may add it only on a later line; its own folder is always there.
        """
        at = self.path.parent
        while not self.has_main_guard():
            package = "__init__.py" in self.reader.list(at)  # never on sys.path itself
            for name in () if package else sorted(self.reader.list(at)):
                if name.endswith(".py") and at / name != self.path:
                    if self.path in self.reached(at / name):
                        return self.of(at / name)._started_from() or at
            if at == self.root or self.root not in at.parents:
                break
            at = at.parent
        started_from = self._started_from()
        if started_from is not None:
            return started_from
        bases, own = self._bases_of_imports(), self.path.parent
        above = bases & self._added_before_runtime(migrated) & set(own.parents)
        if bases.intersection(chain(*self.added())) or self._is_plainly_started():
            bases = above or {own}
        return min(bases, key=lambda base: len(base.parts)) if bases else self._above_package()

    def _is_plainly_started(self) -> bool:
        """True for a program that isn't a module of a package: `python tools/train.py`."""
        listing = self.reader.list(self.path.parent)
        return self.has_main_guard() and "__init__.py" not in listing

    def _bases_of_imports(self) -> set[Path]:
        """The folders in which its project imports are found."""
        absolute = (m for m in self.cache.file(self.path).modules if not m.startswith("."))
        return {found[1] for found in map(self._absolute, absolute) if found}

    def _started_from(self) -> Path | None:
        """Where `python -m folder.train` is run, if such a program isn't in a package.

        It is run that way if it uses `from .` imports, or a text beside it or above says so.
        """
        own = self.path.parent
        if not self._is_plainly_started() or own in self._bases_of_imports():
            return None
        above = [folder for folder in own.parents if self.root in (folder, *folder.parents)]
        for folder in above:
            if self._is_said_to_start(folder, [own, *above]):
                return folder
        modules = self.cache.file(self.path).modules
        levels = [len(m) - len(m.lstrip(".")) for m in modules if m.startswith(".")]
        return above[min(max(levels), len(above)) - 1] if levels and above else None

    def _is_said_to_start(self, at: Path, folders: list[Path]) -> bool:
        """Whether a text mentions `-m folder.train`, the module that this file is in `at`."""
        module = ".".join(self.path.relative_to(at).with_suffix("").parts)
        said = re.compile(rb"""-m[ =,"']+""" + re.escape(module.encode()) + rb"(?![\w.])")
        return any(
            said.search(self.reader.read(folder / name) or b"")
            for folder in folders
            for name in sorted(self.reader.list(folder))
            if name == "Makefile" or name.endswith(_TEXTS)
        )

    def _added_before_runtime(self, migrated: bytes) -> set[Path]:
        """Folders that the migrated file has on `sys.path` when it imports the runtime."""
        facts = File(migrated, self.cache.devices).facts if any(self.added()) else None
        imports = facts.names.imports if facts is not None else ()
        lines = [i.lineno for i in imports if imported_heads(i) == {RUNTIME}]
        if facts is None or not lines:
            return set()
        found = search_path.added(facts.names, self.path)
        folders = [folder for line, _, folder in found if line < min(lines)]
        return {at for folder in folders for at in self._candidates(folder)}

    def package(self) -> str:
        """The package that contains this file: `mylib.ops` for `mylib/ops/a.py`."""
        root = self.import_root()
        inside = root == self.path.parent or root in self.path.parents
        return ".".join(self.path.parent.relative_to(root).parts) if inside else ""

    def _above_package(self) -> Path:
        folder = self.path.parent
        while "__init__.py" in self.reader.list(folder) and self.root in folder.parents:
            folder = folder.parent
        return folder
