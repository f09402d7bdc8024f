"""Normalise: what was written for another accelerator or another target, as the GPU code it is.

A program for Intel's XPU or Apple's MPS is parsed with CUDA's words (`migrator.analysis.
accelerators`). One for another target is rewritten to be GPU code first, by the rules for that;
what is said of the GPU code is then said of what the user wrote.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from migrator.analysis import traces
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.readers import Reader
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.origins import Origins, of_original
from migrator.analysis.values.flow import Flow
from migrator.codes import INTERNAL
from migrator.context import Context
from migrator.diagnostics import SourceMap
from migrator.formats import python
from migrator.frameworks import find_framework
from migrator.frameworks.torch.inventory import find
from migrator.options import Options
from migrator.pipeline.module import read
from migrator.pipeline.result import Failure, Result
from migrator.registry import registry, vocabulary
from migrator.targets import Target, targets

FOREIGN = "xla"  # the accelerator that is left in GPU code that was made of such code


def is_foreign(source: bytes, target: Target) -> bool:
    """True for code, and for lines of commands, that name the library of another target."""
    if not find_framework(target.framework).normalised:
        return False
    libraries = traces.foreign_libraries(target.traces.library)
    if not any(library.encode() in source for library in libraries):
        return False
    try:
        tree = ast.parse(python.decode(source).text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    said = {n.value for n in ast.walk(tree) if isinstance(n, ast.Expr)}  # docstrings
    return any(_names_any(node, libraries) for node in ast.walk(tree) if node not in said)


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
    """Code for another target, rewritten to be the GPU code that it stands for.

    `for_others`: it is only read, since another file imports it.
    """
    from migrator.pipeline.rewrite import rewrite  # most files need none

    try:
        module = read(source)
        rules = registry().foreign
        names = Names(module.tree)
        flow = Flow(names)
        constructs = [
            c for c in find(names, flow, vocabulary(target.framework)) if rules.handlers(c)
        ]
        text = SourceMap(module.text)
        context = Context(
            names, flow, text, target, options, constructs, project, for_others=for_others
        )
        return rewrite(module, context, rules, constructs)
    except RecursionError:
        return Failure(INTERNAL, "too deeply nested to be rewritten").result(source)
    except Failure as failure:
        return failure.result(source)


def of_source(source: bytes, gpu_code: Result, result: Result) -> Result:
    """What became of GPU code, as what became of the foreign code that it was made of."""
    if result.failed or not gpu_code.changed:
        return replace(result, original=source, source=source if result.failed else result.source)
    origins = Origins(*(python.decode(text).text for text in (source, gpu_code.source)))
    found = of_original(origins, gpu_code.diagnostics, result.diagnostics, stays=result.stays)
    text = source if result.stays else result.source
    return replace(result, original=source, source=text, diagnostics=tuple(sorted(found)))


@lru_cache(maxsize=512)
def _read_by_others(content: bytes, target: str) -> bytes:
    return as_gpu_code(content, targets()[target], Options(), None, for_others=True).source


@dataclass(frozen=True)
class AsGpuCode:
    """Reads the files of a project; what is written for another target, as the GPU code it is."""

    reader: Reader
    target: Target

    def read(self, path: Path) -> bytes | None:
        content = self.reader.read(path)
        if content is None or not is_foreign(content, self.target):
            return content
        return _read_by_others(content, self.target.name)

    def list(self, folder: Path) -> frozenset[str]:
        return self.reader.list(folder)


def both(first: Result, then: Result) -> Result:
    """What became of a file for one target, and of that for another framework's target."""
    text = [python.decode(content).text for content in (first.original, first.source)]
    said = of_original(Origins(*text), (), then.diagnostics, stays=False)
    return Result(
        first.original,
        then.source,
        tuple(sorted([*first.diagnostics, *said])),
        first.companions | then.companions,
        first.stays and then.stays,
        first.gate or then.gate,
        first.uses_device or then.uses_device,
    )
