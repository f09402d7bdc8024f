"""Facts: what a file, and the project files that it imports, mean for a rewrite.

`ProjectFacts` follows imports up to the project's root, whatever paths were given on the command
line, so that one file always migrates to the same bytes. It reads through an injected `Reader`.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Protocol

from migrator.analysis import accelerators, devices, inventory, programs, search_path, traces
from migrator.analysis.accelerators import imported_heads
from migrator.analysis.flow import Flow, Kind
from migrator.analysis.guards import Guards
from migrator.analysis.indices import compares_indices
from migrator.analysis.names import Binding, Names, dotted, statements
from migrator.analysis.ranks import STARTS, Ranks
from migrator.analysis.sharding import Models
from migrator.analysis.training import speaks_of_training, stops_gradients
from migrator.construct import uses_device
from migrator.formats.embedded import CELL
from migrator.formats.python import decode
from migrator.targets import RUNTIME

# Cheap tests: for a file without these words the answer is no, and it is not parsed to find out.
_IMPORT = re.compile(rb"\b(?:from|import)\b((?:\\\r?\n|[^\r\n])*)")
_ADDS = re.compile(rb"sys\.path|\bsite\b|\bsys\b.*\bpath\b")
_DISTRIBUTES = re.compile("|".join({name.rpartition(".")[2] for name in STARTS}).encode())
_RANKS = re.compile(
    rb"distributed|spawn|rank|gpus?\b|device_count|world_size|n_?procs|batch_?size"
    rb"|\bbsz?\b|reduction|Process\b|horovod|Sampler\b|num_?devices",
    re.I,
)
_INFERS = re.compile(rb"no_grad|inference_mode")
_TRAINS = re.compile(rb"backward|optim|autograd|train|Trainer|DistributedSampler|func")
# Top-level calls that library modules make too: they do not make a module a script.
_HARMLESS = {"warnings", "logging", "logger", "log", "sys", "os", "matplotlib", "plt", "np",
             "numpy", "random", "torch", "th", "sns", "setattr", "register", "cv2", "mp",
             "multiprocessing", "__all__"}  # fmt: skip


class Reader(Protocol):
    """Where the facts of other files come from."""

    def read(self, path: Path) -> bytes | None:
        """The content of a file, None where it is none or can not be read."""

    def list(self, folder: Path) -> frozenset[str]:
        """Names in a folder, empty where it is none."""


class FileFacts:
    """What other files need to know of one file, without the facts of its imports."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.flow = Flow(names)
        self.ranks = Ranks(names, self.flow)

    @cached_property
    def uses_device(self) -> bool:
        """Whether it works on a device, before a migration or after one."""
        with suppress(RecursionError):
            found = inventory.find(self.names, self.flow, inventory.DEVICES)
            return any(map(uses_device, found)) or devices.is_migrated(self.names, self.flow)
        return False


class File:
    """One file as it is read: parsed when it is asked for, and once."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @cached_property
    def parsed(self) -> accelerators.Parsed | None:
        """None for what is no Python."""
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return accelerators.parse(decode(self.content).text, self.content)
        return None

    @property
    def tree(self) -> ast.Module | None:
        return self.parsed.tree if self.parsed is not None else None

    @cached_property
    def facts(self) -> FileFacts | None:
        with suppress(RecursionError):
            return FileFacts(Names(self.tree)) if self.tree is not None else None
        return None

    @cached_property
    def modules(self) -> Sequence[str]:
        """What it imports: `pkg`, `.sub`, and `pkg.mod` for `from pkg import mod`, too."""
        found: dict[str, None] = {}
        for statement in statements(self.tree) if self.tree is not None else ():
            match statement:
                case ast.Import(names=aliases):
                    found.update((alias.name, None) for alias in aliases)
                case ast.ImportFrom(names=aliases):
                    module = "." * statement.level + (statement.module or "")
                    joint = "" if module.endswith(".") else "."
                    found[module] = None
                    found.update((f"{module}{joint}{alias.name}", None) for alias in aliases)
        # what a migration has written is no part of the project
        return [module for module in found if module.partition(".")[0] != RUNTIME]

    @cached_property
    def has_main_guard(self) -> bool:
        if b"__name__" not in self.content or self.tree is None:
            return False
        return any(map(is_main_guard, self.tree.body))

    @cached_property
    def infers(self) -> bool:
        """Whether it switches gradients off."""
        if not _INFERS.search(self.content) or self.facts is None:
            return False
        return stops_gradients(self.facts.names)

    @cached_property
    def may_train(self) -> bool:
        """Whether it speaks of training."""
        if not _TRAINS.search(self.content):
            return False
        return self.tree is not None and speaks_of_training(self.tree)


def is_script(names: Names) -> bool | None:
    """True for a program that is started, False for a library, None where only callers tell."""
    active = False
    for statement in names.tree.body:
        if is_main_guard(statement) or _starts_a_cell(statement):
            return True
        active = active or _is_active(statement)
    if any(isinstance(i, ast.ImportFrom) and i.level for i in names.imports):
        return False
    return None if active else False


def _starts_a_cell(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name == CELL
    return False


def is_main_guard(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(statement, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(statement.test)
    )


def _is_active(statement: ast.stmt) -> bool:
    match statement:
        case ast.For() | ast.While() | ast.With() | ast.AsyncFor() | ast.AsyncWith():
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return (dotted(func) or "").partition(".")[0] not in _HARMLESS
        case ast.Assign(value=value):
            return any(
                isinstance(n, ast.Call)
                and isinstance(n.func, ast.Attribute)
                and n.func.attr in ("cuda", "to", "parse_args")
                for n in ast.walk(value)
            )
        case ast.If(body=body, orelse=orelse):
            return any(_is_active(s) for s in [*body, *orelse])
        case ast.Try(body=body):
            return any(_is_active(s) for s in body)
    return False


class ProjectFacts:
    """Facts of the project files that one file imports, directly or not.

    `root` is the top of the version-controlled tree (else the path that was given). `held` is why
    the file stays as it is with its whole program, and why --unsafe would rewrite it, if it would.
    """

    def __init__(
        self,
        path: Path,
        root: Path,
        reader: Reader,
        cache: ProjectCache,
        held: tuple[str, str] | None = None,
    ) -> None:
        self.path, self.root, self.reader, self.cache = path, root, reader, cache
        self.held = held

    def of(self, path: Path) -> ProjectFacts:
        """The facts of another file of the project."""
        return ProjectFacts(path, self.root, self.reader, self.cache)

    def with_files(self, files: Mapping[Path, bytes | None]) -> ProjectFacts:
        """The same where some more files are there, or hold something else."""
        reader = Overlay(self.reader, files)
        cache = ProjectCache(reader, self.cache)
        return ProjectFacts(self.path, self.root, reader, cache, self.held)

    # ---- imported values ------------------------------------------------------------------

    def kind(self, qualname: str, depth: int = 0) -> Kind:
        """What a name that this file imports from the project is, or returns when called."""
        found = self._definition(qualname)
        if found is None or depth > 4:
            return Kind.NOTHING
        facts, name, path = found
        kinds = Kind.NOTHING
        for binding in facts.names.top.bindings.get(name, ()):
            match binding.node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    kinds |= facts.flow.returns(binding.node)
                case ast.ClassDef() if facts.flow.is_module_class(binding.node):
                    kinds |= Kind.MODULE
            if binding.kind == "assign":
                kinds |= facts.flow.kind(binding.value)
            elif binding.kind == "import" and binding.qualname:
                there = self.of(path)
                kinds |= there.kind(binding.qualname, depth + 1)
        return kinds

    def starred(self, module: str, name: str, depth: int = 0) -> str | None:
        """What of torch's `name` is where `from module import *` brings it."""
        path = self.resolve(module)
        facts = self.cache.facts(path) if path is not None else None
        if path is None or facts is None or depth > 4:
            return None
        bindings = facts.names.top.bindings.get(name, ())
        for binding in bindings:
            if binding.kind == "import" and (binding.qualname or "").split(".")[0] == "torch":
                return binding.qualname
        there = ProjectFacts(path, self.root, self.reader, self.cache)
        found = (there.starred(m, name, depth + 1) for m in facts.names.star_imports)
        return None if bindings else next((meaning for meaning in found if meaning), None)

    def definition(
        self, qualname: str, depth: int = 0
    ) -> tuple[FileFacts, ProjectFacts, ast.FunctionDef | ast.ClassDef] | None:
        """The function or class of the project that an imported name is, with its file's facts."""
        found = self._definition(qualname)
        if found is None or depth > 4:
            return None
        facts, name, path = found
        there = self.of(path)
        match facts.names.top.bindings.get(name):
            case [Binding(node=ast.FunctionDef() | ast.ClassDef() as found_there)]:
                return facts, there, found_there
            case [Binding(kind="import", qualname=str(origin))]:
                return there.definition(origin, depth + 1)
        return None

    def _definition(self, qualname: str) -> tuple[FileFacts, str, Path] | None:
        module, _, name = qualname.rpartition(".")
        if not module or module.startswith("torch."):
            return None
        path = self.resolve(module if module.strip(".") else module + ".")
        facts = self.cache.facts(path) if path else None
        return (facts, name, path) if facts and path else None

    # ---- imports --------------------------------------------------------------------------

    def resolve(self, module: str) -> Path | None:
        """The project file of a module as this file imports it (`utils.dist`, `..models`)."""
        level = len(module) - len(module.lstrip("."))
        if level:
            folder = self.path.parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._module(folder, [p for p in module.lstrip(".").split(".") if p])
        found = self._absolute(module)
        return found[0] if found else None

    def holds(self, qualname: str) -> bool:
        """Whether a file of the project is what a qualified name begins with."""
        parts = qualname.split(".")
        return any(self.resolve(".".join(parts[:n])) for n in range(1, len(parts) + 1))

    def _absolute(self, module: str) -> tuple[Path, Path] | None:
        """The file of an absolute import, and the folder on `sys.path` that it was found from."""
        parts = module.split(".")
        for base in self._bases():
            found = self._module(base, parts)
            if found is not None and found != self.path:
                return found, base
        return None

    def _bases(self) -> list[Path]:
        """Folders that may be on `sys.path` where this file is imported, or started."""
        known = self.cache.bases.get(self.path)
        if known is None:
            first, last = self._added()
            folder = self.path.parent
            known = [*first, folder, folder / "src", *last]
            while folder != self.root and self.root in folder.parents:
                folder = folder.parent
                known += [folder, folder / "src"]
            self.cache.bases[self.path] = known
        return known

    def _may_import(self, source: bytes) -> bool:
        """A cheap answer: False for a file that can not import another of the project's."""
        heads: set[str] = set()
        for clause in _IMPORT.findall(source):
            if not clause.isascii():
                return True
            heads.update(word.partition(".")[0] for word in re.findall(r"[\w.]+", clause.decode()))
        if "" in heads:  # `from . import …`
            return True
        files = {f"{head}.py" for head in heads}
        listings = map(self.reader.list, self._bases())
        return any(not files.isdisjoint(names) or not heads.isdisjoint(names) for names in listings)

    def _added(self) -> tuple[list[Path], list[Path]]:
        """Folders that this file puts first on `sys.path`, and last."""
        known = self.cache.added.get(self.path)
        if known is None:
            known = self.cache.added[self.path] = [], []
            source = self.reader.read(self.path) or b""
            facts = self.cache.facts(self.path) if _ADDS.search(source) else None
            found = search_path.added(facts.names, self.path) if facts is not None else ()
            for _, last, folder in found:
                for at in self._meant(folder):
                    if at not in known[last] and self.reader.list(at):
                        known[last].append(at)
        return known

    def _meant(self, folder: Path) -> Iterator[Path]:
        """The folders of the project that a path in this file may mean."""
        for start in (self.path.parent, self.root):
            at = Path(os.path.normpath(start / folder))
            if at == self.root or self.root in at.parents:
                yield at

    def _module(self, folder: Path, parts: list[str]) -> Path | None:
        for part in parts[:-1]:
            if part not in self.reader.list(folder):
                return None
            folder = folder / part
        listing = self.reader.list(folder)
        if not parts:
            return folder / "__init__.py" if "__init__.py" in listing else None
        if f"{parts[-1]}.py" in listing:
            return folder / f"{parts[-1]}.py"
        if parts[-1] in listing and "__init__.py" in self.reader.list(folder / parts[-1]):
            return folder / parts[-1] / "__init__.py"
        return None

    def imports(self, path: Path) -> list[Path]:
        """Project files that a file imports."""
        known = self.cache.imports.get(path)
        if known is None:
            here = self.of(path)
            file = self.cache.file(path)
            modules = file.modules if here._may_import(file.content) else ()
            found = (here.resolve(module) for module in modules)
            known = self.cache.imports[path] = list(dict.fromkeys(p for p in found if p))
        return known

    def reached(self, path: Path | None = None) -> Set[Path]:
        """Project files that a file (default: this one) imports, directly or not."""
        start = path or self.path
        known = self.cache.reached.get(start)
        if known is None:
            seen = {start: None}
            queue = self.imports(start)[:]
            while queue:
                at = queue.pop()
                if at not in seen:
                    seen[at] = None
                    queue += self.imports(at)
            del seen[start]
            known = self.cache.reached[start] = seen.keys()
        return known

    def defining(self, attribute: str) -> Iterator[tuple[Path, FileFacts]]:
        """The files that this one imports, directly or not, with a class that has an attribute."""
        for path in self.reached():
            file = self.cache.file(path)
            if b"class" in file.content and attribute.encode() in file.content:
                if file.facts is not None and attribute in file.facts.names.owners:
                    yield path, file.facts

    def needs_cuda(self, module: str) -> bool:
        """True for a module of the project that can not be imported without a library of CUDA's."""
        path = self.resolve(module)
        facts = self.cache.facts(path) if path is not None else None
        if facts is None:
            return False
        found = inventory.find(facts.names, facts.flow, inventory.DEVICES)
        return any(c.kind == "library" and not facts.names.is_guarded_import(c.node) for c in found)

    def imports_gpu_code(self) -> bool:
        """True where a file that this one imports, directly or not, uses a device."""
        return any(self.cache.uses_device(path) for path in self.reached())

    def distributed_program(self) -> dict[Path, Ranks]:
        """The files of the programs for several devices that this file is a part of."""
        speaking = filter(self.cache.speaks_of_ranks, self._files_with_ranks())
        facts = {path: self.cache.facts(path) for path in speaking}
        return {path: found.ranks for path, found in facts.items() if found is not None}

    def only_infers(self) -> bool:
        """True where nothing in these programs trains, nor in others that share their files."""
        files = dict.fromkeys(self._files_with_ranks())
        for path in filter(self.cache.takes_part, list(files)):
            there = self.of(path)
            files |= dict.fromkeys(there._files_with_ranks())
        found = [self.cache.file(path) for path in files]
        return any(file.infers for file in found) and not any(file.may_train for file in found)

    def _files_with_ranks(self) -> Iterable[Path]:
        """All files of the programs for several devices that this file is a part of.

        These are the files that it imports; and, if it has to do with ranks itself or imports what
        starts them, the programs that import it, with what they import.
        """
        files = [self.path, *self.reached()]
        if self.cache.takes_part(self.path) or any(map(self.cache.distributes, files)):
            for importer in self._importers():
                files += [importer, *self.reached(importer)]
        return dict.fromkeys(files) if any(map(self.cache.distributes, files)) else ()

    def obstacle(self, path: Path, ranks: Ranks) -> tuple[int, str] | None:
        """What keeps one process from taking the place of the ranks, in one file of a program."""
        there = self.of(path)

        def definition(function: str) -> ast.AST | None:
            found = there.definition(function)
            return found[2] if found is not None else None

        return ranks.obstacle(definition)

    def serves_ranks(self) -> bool:
        """True for a file that a program for several devices imports."""
        return any(map(self.cache.distributes, self._importers()))

    def taken_names(self) -> frozenset[str]:
        """Names of this file that other files of the project take from it."""
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
                taken.update(n.attr for n in facts.names.order if isinstance(n, ast.Attribute))
        return frozenset(taken)

    def compares_indices(self) -> bool:
        """True where a program that this file is of, or may set up, compares devices by index.

        A configuration may set up every program beside it or above it.
        """
        is_code = self.path.suffix in (".py", ".ipynb")
        programs = [self.path, *self._importers()] if is_code else self.modules_above()
        files = dict.fromkeys(f for path in programs for f in (path, *self.reached(path)))
        return any(map(self.cache.compares_indices, files))

    def makes_copies(self) -> bool:
        """True where a file that this one imports, directly or not, uses nn.DataParallel."""
        return any(map(self.cache.makes_copies, self.reached()))

    def divides_models(self) -> bool:
        """True where a file that this one imports moves a model that can be divided."""
        return any(map(self._divides, self.reached()))

    def _divides(self, path: Path) -> bool:
        facts = self.cache.facts(path) if self.cache.uses_device(path) else None
        if facts is None:
            return False
        there = self.of(path)
        tables = Models(facts.names, Flow(facts.names, there.kind), there).tables("replicated")
        return any(table is not None and table.rules for table in tables.values())

    def importers(self) -> Iterator[Path]:
        """Files beside this one, above or below it that import it."""
        yield from self._importers()
        yield from self._importers_below()

    def _importers(self) -> Iterator[Path]:
        """Files beside this one or above it that import it."""
        return (other for other in self.modules_above() if self.path in self.reached(other))

    def modules_above(self) -> Iterator[Path]:
        """Other files beside this one or above it."""
        folder = self.path.parent
        while True:
            for name in sorted(self.reader.list(folder)):
                if name.endswith(".py") and folder / name != self.path:
                    yield folder / name
            if folder == self.root or self.root not in folder.parents:
                return
            folder = folder.parent

    def _importers_below(self) -> Iterator[Path]:
        """Files in folders below this one that import it: `from ..utils import torch`."""
        top = self.path.parent
        folders = [top]
        while folders:
            folder = folders.pop()
            names = sorted(self.reader.list(folder))
            files = [folder / name for name in names if name.endswith(".py")]
            if folder != top:
                yield from (file for file in files if self.path in self.imports(file))
            depth = len(folder.relative_to(top).parts)
            if depth < _DEEPEST and (files or folder == top):  # others hold data
                folders += [folder / name for name in names if _may_hold_code(name)]

    def may_start_gpu_code(self, source: bytes) -> bool:
        """A cheap answer for files without any token: a script that imports GPU modules."""
        is_started = (b"__name__" in source and self.has_main_guard()) or self.is_started()
        return is_started and self.imports_gpu_code()

    def parsed(self, source: bytes) -> accelerators.Parsed | None:
        """This file as it was parsed for others, if this is what it holds."""
        file = self.cache.file(self.path)
        return file.parsed if file.content == source else None

    def has_main_guard(self) -> bool:
        return self.cache.file(self.path).has_main_guard

    def is_started(self) -> bool:
        """True for what `python -m package` starts, or a command that the project installs."""
        if self.path.name == "__main__.py":
            return True
        if self.path.name == "__init__.py":
            return False  # whoever imports the package would start it
        folder = self.path.parent
        while self.path not in self._installed(folder):
            if folder == self.root or self.root not in folder.parents:
                return False
            folder = folder.parent
        return True

    def _installed(self, folder: Path) -> Set[Path]:
        """The modules that the packaging in a folder makes commands of."""
        known = self.cache.installed.get(folder)
        if known is None:
            files = (name for name in programs.PACKAGING if name in self.reader.list(folder))
            content = {name: self.reader.read(folder / name) or b"" for name in files}
            here = self.of(folder / "setup.py")
            found = (here.resolve(module) for module in programs.commands(content))
            known = self.cache.installed[folder] = {path for path in found if path is not None}
        return known

    def is_imported(self) -> bool:
        """True where a file beside this one imports it."""
        stem = self.path.stem
        word = re.compile(rb"\b" + re.escape(os.fsencode(stem)) + rb"\b")
        for name in self.reader.list(self.path.parent):
            other = self.path.parent / name
            if name.endswith(".py") and other != self.path:
                source = self.reader.read(other) or b""
                if word.search(source) and self.path in self.imports(other):
                    return True
        return False

    def import_root(self, migrated: bytes = b"") -> Path:
        """The folder on `sys.path` that what this file imports, once `migrated`, is found from.

        For a module, the folder of the program that imports it; for a program, the folder that its
        own project imports are found from, if it is on `sys.path` when the runtime is imported. It
        may be the program that puts it there, by a line below; its own folder always is.
        """
        at = self.path.parent
        while not self.has_main_guard():
            package = "__init__.py" in self.reader.list(at)  # never on sys.path itself
            for name in () if package else sorted(self.reader.list(at)):
                if name.endswith(".py") and at / name != self.path:
                    if self.path in self.reached(at / name):
                        return at
            if at == self.root or self.root not in at.parents:
                break
            at = at.parent
        absolute = (m for m in self.cache.file(self.path).modules if not m.startswith("."))
        bases = {found[1] for found in map(self._absolute, absolute) if found}
        own = self.path.parent
        above = bases & self._added_before_runtime(migrated) & set(own.parents)
        if bases.intersection(chain(*self._added())) or self._is_plainly_started():
            bases = above or {own}
        return min(bases, key=lambda base: len(base.parts)) if bases else self._above_package()

    def _is_plainly_started(self) -> bool:
        """True for a program that is no module of a package: `python tools/train.py`."""
        listing = self.reader.list(self.path.parent)
        return self.has_main_guard() and "__init__.py" not in listing

    def _added_before_runtime(self, migrated: bytes) -> set[Path]:
        """Folders that the migrated file has on `sys.path` when it imports the runtime."""
        facts = File(migrated).facts if any(self._added()) else None
        imports = facts.names.imports if facts is not None else ()
        lines = [i.lineno for i in imports if imported_heads(i) == {RUNTIME}]
        if facts is None or not lines:
            return set()
        found = search_path.added(facts.names, self.path)
        folders = [folder for line, _, folder in found if line < min(lines)]
        return {at for folder in folders for at in self._meant(folder)}

    def package(self) -> str:
        """The package that this file is in: `mylib.ops` for `mylib/ops/a.py`."""
        root = self.import_root()
        inside = root == self.path.parent or root in self.path.parents
        return ".".join(self.path.parent.relative_to(root).parts) if inside else ""

    def _above_package(self) -> Path:
        folder = self.path.parent
        while "__init__.py" in self.reader.list(folder) and self.root in folder.parents:
            folder = folder.parent
        return folder


_DEEPEST = 8  # folders below a file that are looked into: a link may lead back up


def _may_hold_code(name: str) -> bool:
    """Whether something in a folder may be a package."""
    return name.isidentifier() and name not in (RUNTIME, "__pycache__")


@dataclass(frozen=True)
class Overlay:
    """A reader that knows some files better."""

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


class ProjectCache:
    """What is known of the project's files, shared by all files of one run.

    What an `earlier` run found in files that are the same now is not looked for again.
    """

    def __init__(self, reader: Reader, earlier: ProjectCache | None = None) -> None:
        self.reader = reader
        self._read: dict[Path, File] = dict(earlier._read) if earlier is not None else {}
        self._files: dict[Path, File] = {}
        self.imports: dict[Path, list[Path]] = {}
        self.added: dict[Path, tuple[list[Path], list[Path]]] = {}
        self.bases: dict[Path, list[Path]] = {}
        self.installed: dict[Path, Set[Path]] = {}
        self.reached: dict[Path, Set[Path]] = {}
        self.guards: dict[Path, Guards] = {}
        self.speaks_of_kernels: dict[Path, bool] = {}
        self._distributes: dict[Path, bool] = {}
        self._speaks: dict[Path, bool] = {}

    def file(self, path: Path) -> File:
        """A file as it is read; one that can not be read is empty."""
        if path not in self._files:
            content = self.reader.read(path) or b""
            if path not in self._read or self._read[path].content != content:
                self._read[path] = File(content)
            self._files[path] = self._read[path]
        return self._files[path]

    def facts(self, path: Path) -> FileFacts | None:
        return self.file(path).facts

    def distributes(self, path: Path) -> bool:
        """True for a file that starts processes for several devices."""
        known = self._distributes.get(path)
        if known is None:
            known = bool(_DISTRIBUTES.search(self.reader.read(path) or b""))
            if known:
                facts = self.facts(path)
                known = facts is not None and facts.ranks.start is not None
            self._distributes[path] = known
        return known

    def compares_indices(self, path: Path) -> bool:
        """True for a file that compares the device of a tensor with one that may have an index."""
        if b".device" not in (self.reader.read(path) or b""):
            return False
        facts = self.facts(path)
        return facts is not None and compares_indices(facts.names, facts.flow)

    def makes_copies(self, path: Path) -> bool:
        """True for a file that uses nn.DataParallel, or what a migration made of it."""
        if b"DataParallel" not in (self.reader.read(path) or b""):
            return False
        facts = self.facts(path)
        return facts is not None and facts.ranks.copies

    def takes_part(self, path: Path) -> bool:
        """True for a file that has to do with ranks."""
        facts = self.facts(path) if self.speaks_of_ranks(path) else None
        return facts is not None and facts.ranks.take_part

    def speaks_of_ranks(self, path: Path) -> bool:
        """A cheap answer: False for a file that can not have to do with ranks."""
        known = self._speaks.get(path)
        if known is None:
            known = self._speaks[path] = bool(_RANKS.search(self.reader.read(path) or b""))
        return known

    def uses_device(self, path: Path) -> bool:
        """True for a file with GPU code, or with what a migration made of it."""
        source = self.reader.read(path) or b""
        if not (inventory.has_tokens(source) or traces.MIGRATED.search(source)):
            return False
        facts = self.facts(path)
        return facts is not None and facts.uses_device
