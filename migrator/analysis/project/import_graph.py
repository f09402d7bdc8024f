"""The import graph: which files of a project a file imports, and which import it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Protocol, Self

from migrator.analysis.cuda_libraries import MODULES
from migrator.analysis.project import search_path
from migrator.analysis.project.composed_settings import modules_named
from migrator.analysis.project.imports_by_name import ANY
from migrator.analysis.project.project_cache import ProjectCache
from migrator.analysis.project.readers import Reader
from migrator.formats import file_kinds
from migrator.targets import RUNTIME

_DEEPEST = 8  # folders searched below a file: a link may lead back up


class SearchedFramework(Protocol):
    """What is asked of a framework whose code is looked for in files."""

    @property
    def normalised(self) -> bool: ...

    @property
    def has_tokens(self) -> Callable[[bytes], bool]: ...

    def is_imported_in(self, source: bytes) -> bool: ...


class ImportGraph:
    """The imports of one file, up to the project's root: the same, whatever paths are migrated.

    `root` is the top of the version-controlled tree (or the path that was given).
    """

    def __init__(self, path: Path, root: Path, reader: Reader, cache: ProjectCache) -> None:
        self.path, self.root, self.reader, self.cache = path, root, reader, cache

    def of(self, path: Path) -> Self:
        """The facts of another file of the project."""
        return type(self)(path, self.root, self.reader, self.cache)

    def resolve(self, module: str) -> Path | None:
        """The project file for a module as named in this file (`utils.dist`, `..models`)."""
        level = len(module) - len(module.lstrip("."))
        if level:
            folder = self.path.parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._module(folder, [p for p in module.lstrip(".").split(".") if p])
        found = self._absolute(module)
        return found[0] if found else None

    def holds(self, qualname: str) -> bool:
        """Whether a qualified name starts with a file of the project."""
        parts = qualname.split(".")
        return any(self.resolve(".".join(parts[:n])) for n in range(1, len(parts) + 1))

    def _absolute(self, module: str) -> tuple[Path, Path] | None:
        """The file of an absolute import, and the folder on `sys.path` where it was found."""
        parts = module.split(".")
        for base in self.bases():
            found = self._module(base, parts)
            other = found != self.path or self.path.name == "__init__.py"  # a package, of itself
            if found is not None and other and not self._is_of_package(base, parts):
                return found, base
        return None

    def _is_of_package(self, base: Path, parts: list[str]) -> bool:
        """Whether a library is meant, and a package's folder only has its name: `ops/triton/`."""
        if parts[0] not in MODULES or base == self.path.parent:
            return False
        return "__init__.py" in self.reader.list(base)

    def bases(self) -> list[Path]:
        """Folders that may be on `sys.path` when this file is imported, or started."""
        known = self.cache.bases.get(self.path)
        if known is None:
            first, last = self.all_added()
            known = usual = self._usual_bases()
            if first or last:
                known = [*first, *usual[:2], *last, *usual[2:]]
            self.cache.bases[self.path] = known
        return known

    def all_added(self) -> tuple[list[Path], list[Path]]:
        """What this file adds to `sys.path`, and what a module beside it does (`_init_paths`)."""
        first, last = self.added()
        own, beside = self.path.parent, self.reader.list(self.path.parent)
        for head in sorted(self.cache.file(self.path).libraries):
            path = self.cache.inside(own, f"{head}.py") if f"{head}.py" in beside else self.path
            if path != self.path and (added := self.of(path).added()):
                first, last = [*first, *added[0]], [*last, *added[1]]
        return first, last

    def _usual_bases(self) -> list[Path]:
        """These folders for a file that adds none."""
        own = self.path.parent
        known = self.cache.usual_bases.get(own)
        if known is None:
            known = [each for folder in self._folders_above() for each in (folder, folder / "src")]
            self.cache.usual_bases[own] = known
        return known

    def added(self) -> tuple[list[Path], list[Path]]:
        """Folders that this file adds to `sys.path` at the front, and at the end."""
        known = self.cache.added.get(self.path)
        if known is None:
            known = self.cache.added[self.path] = [], []
            source = self.reader.read(self.path) or b""
            facts = self.cache.facts(self.path) if search_path.may_be_added_to(source) else None
            found = search_path.added(facts.names, self.path) if facts is not None else ()
            for _, last, folder in found:
                for at in self._candidates(folder):
                    if at not in known[last] and self.reader.list(at):
                        known[last].append(at)
        return known

    def _candidates(self, folder: Path) -> Iterator[Path]:
        """The project folders that a path in this file may refer to."""
        for start in (self.path.parent, self.root):
            at = Path(os.path.normpath(start / folder))
            if at == self.root or self.root in at.parents:
                yield at

    def module_in(self, folder: Path, module: str) -> Path | None:
        """The file of a module in a folder that is on `sys.path`."""
        return self._module(folder, module.split("."))

    def _module(self, folder: Path, parts: list[str]) -> Path | None:
        inside = self.cache.inside
        for part in parts[:-1]:
            if part not in self.reader.list(folder):
                return None
            folder = inside(folder, part)
        listing = self.reader.list(folder)
        if not parts:
            return inside(folder, "__init__.py") if "__init__.py" in listing else None
        if f"{parts[-1]}.py" in listing:
            return inside(folder, f"{parts[-1]}.py")
        if parts[-1] in listing:
            package = inside(folder, parts[-1])
            if "__init__.py" in self.reader.list(package):
                return inside(package, "__init__.py")
        return None

    def imports(self, path: Path) -> list[Path]:
        """Project files that a file imports.

        A shell script, settings or a list of packages import none: their lines may show imports.
        """
        known = self.cache.imports.get(path)
        if known is None:
            is_code = path.suffix == ".py" or file_kinds.line_kind(path) is None
            known = self.cache.imports[path] = []
            if is_code:
                file, at = self.cache.file(path), self.of(path)
                found = [*map(at.resolve, file.modules), *at._named_by_string(file.by_name.modules)]
                named = [*at._named_by_settings()]
                self.cache.named_by_settings.update(named)
                known += dict.fromkeys(p for p in [*found, *named] if p and p != path)
        return known

    def _named_by_string(self, modules: Iterable[str]) -> Iterator[Path | None]:
        """The files of `pkg.mod`, and all of a package's for `pkg.*`."""
        for module in modules:
            package = self.resolve(module.removesuffix(ANY))
            yield package
            if module.endswith(ANY) and package is not None and package.name == "__init__.py":
                yield from self._modules_in(package.parent)

    def _named_by_settings(self) -> Iterator[Path]:
        """The files of modules that settings name which are composed for this file."""
        for settings in self.composed():
            for name in modules_named(self.cache.file(settings).content):
                parts = name.split(".")
                found = (self.resolve(".".join(parts[:n])) for n in range(len(parts), 0, -1))
                yield from [*filter(None, found)][:1]

    def composed(self) -> Sequence[Path]:
        """The settings of the project that may be composed for this file."""
        known = self.cache.composed.get(self.path)
        if known is None:
            known = self.cache.composed[self.path] = []
            for folder in self.cache.file(self.path).composed.folders:
                at = Path(os.path.normpath(self.path.parent / folder))
                if at == self.root or self.root in at.parents:
                    known += self._settings_in(at)
        return known

    def _settings_in(self, top: Path) -> Iterator[Path]:
        folders = [(top, 0)]
        while folders:
            folder, depth = folders.pop()
            for name in sorted(self.reader.list(folder)):
                path = self.cache.inside(folder, name)
                if name.endswith((".yaml", ".yml")) and not file_kinds.is_data(path):
                    yield path
                elif "." not in name and depth < _DEEPEST:
                    folders.append((path, depth + 1))

    def reached(self, path: Path | None = None) -> Set[Path]:
        """Project files that a file (default: this one) imports, directly or not."""
        start = path or self.path
        known = self.cache.reached.get(start)
        if known is None:
            seen: dict[Path, None] = {}
            self._reach_from(start, seen)
            del seen[start]
            known = self.cache.reached[start] = seen.keys()
        return known

    def _reach_from(self, start: Path, seen: dict[Path, None]) -> None:
        """Add a file and those that it imports, directly or not. What was seen, with its imports,
        isn't followed again."""
        queue = [start]
        while queue:
            at = queue.pop()
            if at not in seen:
                seen[at] = None
                queue += self.imports(at)

    def imports_gpu_code(self, framework: SearchedFramework | None = None) -> bool:
        """True where a file that this one imports, directly or not, uses a device; of PyTorch,
        or of another framework that is given."""
        return any(self._is_gpu_code(path, framework) for path in self.reached())

    def leads_to_device(self, qualname: str) -> bool:
        """Whether a name is of a project file that uses a device, by itself or by its imports."""
        parts = qualname.split(".")
        found = [self.resolve(".".join(parts[:n])) for n in range(len(parts), 0, -1)]
        path = next((path for path in found if path is not None), None)
        return path is not None and any(map(self.cache.uses_device, (path, *self.reached(path))))

    def is_imported_by_gpu_code(self, framework: SearchedFramework | None = None) -> bool:
        """Whether a program that imports this file, directly or not, uses a device; of PyTorch, or
        of another framework that is given."""
        programs = ((path, *self.reached(path)) for path in self.importers())
        return any(self._is_gpu_code(path, framework) for files in programs for path in files)

    def _is_gpu_code(self, path: Path, framework: SearchedFramework | None) -> bool:
        if framework is None or framework.normalised:
            return self.cache.uses_device(path)
        source = self.reader.read(path) or b""
        return framework.is_imported_in(source) and framework.has_tokens(source)

    def may_be_of_gpu_code(self) -> bool:
        """Whether this is PyTorch code, beside or below code that uses a device, that is not for
        scripts alone: settings may name it, as in `_target_: models.net.Net`."""
        importers = [self.cache.file(path) for path in self.importers()]
        here = self.cache.file(self.path)
        if all(file.has_main_guard for file in importers or [here]):
            return False
        if not any(b"torch" in file.content for file in (here, *importers)):
            return False
        return any(map(self.cache.uses_device, self.modules_around()))

    def importers(self) -> Iterator[Path]:
        """Files beside this one, above or below it that import it."""
        yield from self.importers_above()
        yield from self.importers_below()

    def importers_above(self) -> list[Path]:
        """Files beside this one or above it that import it, directly or not."""
        known = self.cache.importers.get(self.path)
        if known is None:
            here = self.path
            known = [path for path, reached in self._reaching() if here in reached and path != here]
            self.cache.importers[self.path] = known
        return known

    def _reaching(self) -> list[tuple[Path, Set[Path]]]:
        """What each file beside this one or above it imports: the same for a whole folder."""
        known = self.cache.reaching.get(self.path.parent)
        if known is None:
            known = [(path, self.reached(path)) for path in self._modules_up()]
            self.cache.reaching[self.path.parent] = known
        return known

    def modules_above(self) -> Iterator[Path]:
        """Other files beside this one or above it."""
        return (path for path in self._modules_up() if path != self.path)

    def modules_around(self) -> Sequence[Path]:
        """This file, files beside it or above it, and those of `scripts/` beside a package: the
        same for a whole folder."""
        known = self.cache.modules_around.get(self.path.parent)
        if known is None:
            known = [*self._modules_up(), *self.modules_beside()]
            self.cache.modules_around[self.path.parent] = known
        return known

    def _modules_up(self) -> Iterator[Path]:
        for folder in self._folders_above():
            yield from self._modules_in(folder)

    def _folders_above(self) -> Iterator[Path]:
        """The folder of this file, and those above it."""
        folder = self.path.parent
        yield folder
        while folder != self.root and self.root in folder.parents:
            folder = folder.parent
            yield folder

    def _modules_in(self, folder: Path) -> list[Path]:
        known = self.cache.modules_in.get(folder)
        if known is None:
            names = sorted(self.reader.list(folder))
            known = [self.cache.inside(folder, name) for name in names if name.endswith(".py")]
            self.cache.modules_in[folder] = known
        return known

    def importers_below(self) -> Iterator[Path]:
        """Files in folders below this one that import it: `from ..utils import torch`."""
        top = self.path.parent
        folders = [(top, 0)]
        while folders:
            folder, depth = folders.pop()
            files = self._modules_in(folder)
            if folder != top:
                yield from (file for file in files if self.path in self.imports(file))
            if depth < _DEEPEST and (files or folder == top):  # other folders hold data
                folders += [(inner, depth + 1) for inner in self._folders_in(folder)]

    def modules_beside(self) -> Iterator[Path]:
        """Files neither above this one nor below it: those of `scripts/` beside a package."""
        own = self.path.parent
        above = {own, *own.parents}
        folders = [(self.root, 0)]
        while folders:
            folder, depth = folders.pop()
            files = self._modules_in(folder)
            if folder not in above:
                yield from files
            if depth < _DEEPEST and (files or folder in above):
                inner = self._folders_in(folder)
                folders += [(each, depth + 1) for each in inner if each != own]

    def modules_of_project(self) -> Iterator[Path]:
        """All files of the project."""
        folders = [(self.root, 0)]
        while folders:
            folder, depth = folders.pop()
            yield from self._modules_in(folder)
            if depth < _DEEPEST:
                folders += [(each, depth + 1) for each in self._folders_in(folder)]

    def _folders_in(self, folder: Path) -> list[Path]:
        """What may be a package in a folder."""
        known = self.cache.folders_in.get(folder)
        if known is None:
            names = filter(_may_hold_code, sorted(self.reader.list(folder)))
            known = self.cache.folders_in[folder] = [self.cache.inside(folder, n) for n in names]
        return known


def _may_hold_code(name: str) -> bool:
    """Whether a folder may contain a package."""
    return name.isidentifier() and name not in (RUNTIME, "__pycache__")
