"""Normalise: turn code for another accelerator or target into the GPU code it stands for.

A program for Intel's XPU or Apple's MPS is parsed with CUDA's names (see
`migrator.analysis.devices.other_accelerators`). A program for another target, written by hand or by
an earlier migration, is first rewritten to GPU code by the rules for that. Diagnostics on the GPU
code are then mapped back to the user's code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from migrator.analysis import foreign_code
from migrator.analysis.devices import other_accelerators
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.readers import Reader
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.origins import Origins, of_original
from migrator.analysis.values.flow import Flow
from migrator.codes import INTERNAL, UPGRADES
from migrator.construct import Construct
from migrator.context import Context
from migrator.diagnostics import Diagnostic, Outcome, Range, SourceMap
from migrator.formats import python_source
from migrator.frameworks import find_framework
from migrator.frameworks.torch.find_constructs import find
from migrator.options import Options
from migrator.pipeline import older_python
from migrator.pipeline.module import read_module
from migrator.pipeline.result import MigrationFailure, Result
from migrator.registry import registry, vocabulary
from migrator.targets import RUNTIME, Target, portable, targets


@dataclass(frozen=True)
class Foreign:
    """The origin of code for another target, and the device it names as GPU code."""

    device: str  # "" if it names none
    is_migrated: bool  # by an earlier run; otherwise written by hand with the target's library


def foreign(source: bytes, target: Target) -> Foreign | None:
    """The origin of code for another target; None for any other code."""
    if not find_framework(target.framework).normalised:
        return None
    if _names_library(source, target):
        return Foreign(foreign_code.LIBRARY_DEVICE, RUNTIME.encode() in source)
    device = _migrated_for(source, target)
    return Foreign(device, True) if device is not None else None


def _names_library(source: bytes, target: Target) -> bool:
    """Whether code, or lines of commands, name the library of another target."""
    libraries = foreign_code.foreign_libraries(target.markers.library)
    if not any(library.encode() in source for library in libraries):
        return False
    return _names_one_of(source, tuple(libraries))


@lru_cache(maxsize=512)  # asked for a file, and for those that import it
def _names_one_of(source: bytes, libraries: tuple[str, ...]) -> bool:
    tree = _tree(source)
    if tree is None:
        return True
    nodes = [*ast.walk(tree)]
    said = {node.value for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    return any(_names_any(node, libraries) for node in nodes if node not in said)


@lru_cache(maxsize=1)  # asked twice for a file
def _tree(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(python_source.decode(source).text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _migrated_for(source: bytes, target: Target) -> str | None:
    """The device of the other target that code was migrated for; "" if that is unclear.

    Code that only uses names that this target's runtime has, too, counts as this target's.
    """
    foreign_devices = foreign_code.foreign_devices(target.markers.devices)
    others = [name for name in foreign_devices if foreign_code.quotes(name, source)]
    speaks = RUNTIME.encode() in source  # most files don't, and this test is faster
    asked = {found[1].decode() for found in _OF_RUNTIME.finditer(source)} if speaks else set()
    lacks = any(not target.offers(name) and _is_offered(name) for name in asked)
    if "setup" in asked:
        lacks |= any(word.encode() in source for word in _foreign_set_ups(target))
    if not lacks and (not others or _is_own(source, target) or (not asked and b"cuda" in source)):
        return None  # at most, a branch for the other device
    return _put_on(source, tuple(others), asks=bool(asked), lacks=lacks)


@lru_cache(maxsize=512)
def _put_on(source: bytes, others: tuple[str, ...], asks: bool, lacks: bool) -> str | None:
    tree = _tree(source)
    if tree is None:
        return None
    used = other_accelerators.put_on(tree, others, asks=asks)
    if used is None and lacks:
        return others[0] if others else ""
    return used


def _is_own(source: bytes, target: Target) -> bool:
    """Whether code names the target's own device."""
    own, by_torch = target.markers, bool(target.api.device_names)
    named = (own.library, "torch.accelerator" if by_torch else "")
    if any(name and name.encode() in source for name in named):
        return True
    return any(foreign_code.quotes(name, source) for name in own.devices)


def _is_offered(name: str) -> bool:
    """Whether any target's runtime has a name."""
    return any(portable(other).offers(name) for other in targets().values())


def _foreign_set_ups(target: Target) -> frozenset[str]:
    """Arguments of set-up that only other targets have."""
    of_others = {word for other in targets().values() for word in _set_ups(other)}
    return frozenset(of_others - _set_ups(target))


def _set_ups(target: Target) -> set[str]:
    devices = target.api.devices
    words = (devices.copies_setup, devices.launch_setup) if devices is not None else ()
    return {word for word in words if word}


_OF_RUNTIME = re.compile(rb"\b%b\.(\w+)" % RUNTIME.encode())


def _names_any(node: ast.AST, libraries: Sequence[str]) -> bool:
    match node:
        case ast.ImportFrom(module=str(text)) | ast.alias(name=text) | ast.Name(id=text):
            return any(library in text for library in libraries)
        case ast.Constant(value=str(text)) | ast.Attribute(attr=text):
            return any(library in text for library in libraries)
    return False


def as_gpu_code(
    source: bytes,
    target: Target,
    options: Options,
    project: ProjectFacts | None,
    *,
    for_others: bool = False,
) -> Result:
    """Code for another target, rewritten to the GPU code it stands for.

    `for_others`: it is only read, because another file imports it.
    """
    from migrator.pipeline.rewrite import rewrite  # most files need none

    try:
        module = read_module(source)
        rules = registry().foreign
        names = Names(module.tree)
        flow = Flow(names)
        found = find(names, flow, vocabulary(target.framework), kinds=rules.kinds)
        constructs = [construct for construct in found if rules.handlers(construct)]
        constructs += _migrated(names, target)
        text = SourceMap(module.text)
        context = Context(
            names, flow, text, target, options, constructs, project, for_others=for_others
        )
        # Which of its ranks the target supports is decided for the GPU program.
        context.distributed.unserved, context.distributed.is_unlaunched = {}, False
        return rewrite(module, context, rules, constructs)
    except RecursionError:
        return MigrationFailure(INTERNAL, "too deeply nested to be rewritten").result(source)
    except MigrationFailure as failure:
        return failure.result(source)


def _migrated(names: Names, target: Target) -> Iterator[Construct]:
    """Traces of a migration for another target: names of its runtime, and process groups."""
    devices = foreign_code.foreign_devices(target.markers.devices)
    for node in names.order:
        qualname = ""
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            qualname = names.qualified(node) or ""
        if qualname.startswith(f"{RUNTIME}."):
            yield Construct("migrated", qualname, node)
        elif qualname == "torch.distributed.init_process_group":
            call = names.call_of(node)
            back_end = other_accelerators.group_by(call) if call is not None else None
            if isinstance(back_end, ast.Constant) and back_end.value in devices:
                yield Construct("migrated", qualname, node)


def of_source(source: bytes, gpu_code: Result, result: Result) -> Result:
    """Map the result for the GPU code back to the code that it was made from."""
    if result.failed:
        return replace(result, original=source, source=source)
    left = {d.range: d for d in gpu_code.diagnostics if d.outcome is Outcome.REPORTED}
    if not gpu_code.changed:
        found = list(result.diagnostics)
    else:
        origins = Origins(*(python_source.decode(text).text for text in (source, gpu_code.source)))
        found = of_original(origins, gpu_code.diagnostics, result.diagnostics, stays=result.stays)
    # What was left is not GPU code; the rules for foreign code may have kept it.
    found = [d for d in found if d.range not in left or d.outcome in (None, Outcome.REPORTED)]
    seen = {d.range for d in found if d.outcome is not None}
    found += [d for place, d in left.items() if place not in seen]
    text = source if result.stays else result.source
    return replace(result, original=source, source=text, diagnostics=tuple(sorted(found)))


@lru_cache(maxsize=512)
def _read_by_others(content: bytes, target: str) -> bytes:
    return as_gpu_code(content, targets()[target], Options(), None, for_others=True).source


@dataclass(frozen=True)
class AsGpuCode:
    """Reads project files; code for another target is returned as GPU code.

    Arguments of older Pythons have their new names.
    """

    reader: Reader
    target: Target

    def read(self, path: Path) -> bytes | None:
        content = self.reader.read(path)
        content = older_python.as_read(content) if content is not None else None
        if content is None or foreign(content, self.target) is None:
            return content
        return _read_by_others(content, self.target.name)

    def list(self, folder: Path) -> frozenset[str]:
        return self.reader.list(folder)


def both(first: Result, then: Result) -> Result:
    """Combine the results of a file for one target and for another framework's target."""
    text = [python_source.decode(content).text for content in (first.original, first.source)]
    said = of_original(Origins(*text), (), then.diagnostics, stays=False)
    return Result(
        first.original,
        then.source,
        tuple(sorted(_upgrades_once(first.diagnostics, said))),
        first.companions | then.companions,
        first.stays and then.stays,
        first.gate or then.gate,
        first.uses_device or then.uses_device,
    )


def _upgrades_once(*results: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Old names that each framework's rules have looked at count once: by who did not keep them."""
    known: dict[Range, Diagnostic] = {}
    for found in (diagnostic for each in results for diagnostic in each):
        if found.outcome is None or not found.code.startswith(UPGRADES):
            yield found
        elif found.range not in known or known[found.range].outcome is Outcome.KEPT:
            known[found.range] = found
    yield from known.values()
