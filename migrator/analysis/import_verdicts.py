"""Import verdicts: what is known of each module that a program imports.

What needs CUDA is in cuda_libraries.json, what runs without a GPU in known_modules.json, one entry
a line, each with the page that says so. What a project compiles, `project/extensions.py` finds. All
others are unknown: they may run or not, and nobody has looked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.analysis import foreign_code
from migrator.analysis.cuda_libraries import MODULES
from migrator.analysis.devices import other_accelerators
from migrator.analysis.project.extension_module import Built, Extension
from migrator.analysis.project.extensions import extension_of
from migrator.analysis.project.imports_by_name import ANY
from migrator.analysis.upgrade_tables import removed_names
from migrator.targets import RUNTIME

if TYPE_CHECKING:
    from migrator.analysis.project.import_graph import ImportGraph


class Verdict(StrEnum):
    """What is known of a module."""

    STANDARD = "standard library"
    OWN = "the project's own"
    WORKS = "works"
    NEEDS_CUDA = "needs CUDA"
    EXTENSION = "compiled for CUDA"  # by the project itself
    FOR_CPU = "compiled for the CPU"  # by the project itself
    COMPILED = "compiled, and unknown"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class PlainModules:
    """Modules that run on a machine without a GPU, and the package that brings them.

    `tested` is the version that was imported beside the tested torch, on a machine without a GPU;
    `oldest` the first that can be, where programs insist on older ones.
    """

    modules: tuple[str, ...]
    package: str
    source: str
    tested: str = ""
    oldest: str = ""


@dataclass(frozen=True)
class ImportedModule:
    """A module that a program imports, by the name that decides, with its verdict."""

    module: str
    verdict: Verdict
    about: str = ""  # the version that works, or why it doesn't


@cache
def known_modules() -> dict[str, PlainModules]:
    text = Path(__file__).with_name("known_modules.json").read_text(encoding="utf-8")
    rows = [PlainModules(**{**row, "modules": tuple(row["modules"])}) for row in json.loads(text)]
    return {module: each for each in rows for module in each.modules}


def verdict_of(module: str, project: ImportGraph | None = None) -> ImportedModule:
    """The verdict on a module, as a file of a project imports it (`numpy.linalg`, `..models`)."""
    head = module.partition(".")[0]
    if head in sys.stdlib_module_names:
        return ImportedModule(head, Verdict.STANDARD)
    if project is not None and (not head or project.holds(module)):
        extension = extension_of(project, module)
        return ImportedModule(module, Verdict.OWN) if extension is None else _compiled(extension)
    for name in (".".join(module.split(".")[:2]), head):
        if name in MODULES:
            return ImportedModule(name, Verdict.NEEDS_CUDA, MODULES[name].reason(name))
    if head in other_accelerators.LIBRARIES:
        return ImportedModule(head, Verdict.NEEDS_CUDA, f"{head} is for another accelerator")
    if head in (*foreign_code.LIBRARIES, *foreign_code.MODULES, RUNTIME):
        return ImportedModule(head, Verdict.WORKS)
    if head in known_modules():
        return ImportedModule(head, Verdict.WORKS, known_modules()[head].tested)
    extension = extension_of(project, module) if project is not None else None
    if extension is not None:
        return _compiled(extension)
    is_own = project is not None and _is_namespace(project, head)
    return ImportedModule(head, Verdict.OWN if is_own else Verdict.UNKNOWN)


def _is_namespace(project: ImportGraph, head: str) -> bool:
    """Whether a folder of the project has modules, though no `__init__.py`."""
    folders = (project.reader.list(base / head) for base in project.bases())
    return any(name.endswith(".py") for names in folders for name in names)


_COMPILED = {
    Built.CUDA: Verdict.EXTENSION, Built.CPU: Verdict.FOR_CPU, Built.UNKNOWN: Verdict.COMPILED,
}  # fmt: skip


def _compiled(extension: Extension) -> ImportedModule:
    return ImportedModule(extension.module, _COMPILED[extension.built], extension.known_by)


def is_known(module: str) -> bool:
    """A cheap test: whether a module has a verdict that no file of a project changes."""
    head = module.partition(".")[0]
    known = head in sys.stdlib_module_names or head in MODULES or head in known_modules()
    return known or head in (*foreign_code.LIBRARIES, *foreign_code.MODULES, RUNTIME)


def imports_of(files: Iterable[ImportGraph]) -> dict[ImportedModule, list[Path]]:
    """All that some files import, each with the files that do, by name; but for what is sure:
    the standard library, and the project's own modules."""
    found: dict[ImportedModule, list[Path]] = {}
    for project in files:
        for each in dict.fromkeys(_verdicts(project)):
            if each.verdict not in (Verdict.STANDARD, Verdict.OWN):
                found.setdefault(each, []).append(project.path)
    return dict(sorted(found.items(), key=lambda item: (item[0].module.lower(), item[0].module)))


def unknown(imports: Iterable[ImportedModule]) -> list[str]:
    """The modules among them of which nobody knows whether they run without a GPU.

    Of those that are gone, the rules for old versions speak.
    """
    named = (each.module for each in imports if each.verdict is Verdict.UNKNOWN)
    return [module for module in named if module not in removed_names()]


def _verdicts(project: ImportGraph) -> Iterator[ImportedModule]:
    file = project.cache.file(project.path)
    named = (module for module in file.by_name.modules if not module.endswith(ANY))
    for module in (*file.modules, *named):
        yield verdict_of(module, project)
