"""The functions that are to be written anew: one for each function that launches kernels, or for
the autograd.Function that it belongs to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.syntax.nodes import parameters as parameters_of

from .kernel import Kernel, KernelPart
from .native_kernels import native_kernels
from .python_kernels import python_kernels
from .reference_implementations import compared, is_test, named, references
from .search import Definition, Search, Use, place_of

_FUNCTION = "torch.autograd.Function"
_CALLS = 4  # of a function, that are shown
_DEEPEST = 3  # from a function that launches kernels up to its autograd.Function


@dataclass
class _Written:
    """What takes the place of a function, and the kernels that it launches."""

    path: Path
    definition: Definition | None  # None: the kernels are called by scripts and tests alone
    method: str = ""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)  # of the kernel, without a definition


def parts(project: ProjectFacts, search: Search) -> Sequence[KernelPart]:
    """What has to be written anew for the kernels in a file."""
    facts = project.cache.facts(project.path)
    if facts is None:
        return ()
    written: dict[object, _Written] = {}
    for find in (python_kernels, native_kernels):
        for kernel, launches in find(project, facts, search):
            above = [found for use in launches if (found := _above(search, use)) is not None]
            for found in above or [_Written(project.path, None, uses=[*launches])]:
                key = (found.definition, found.method) if found.definition else kernel.name
                written.setdefault(key, found).kernels[kernel.name] = kernel
    return [_part(search, each) for each in written.values()]


def _above(search: Search, use: Use) -> _Written | None:
    """The function that a launch is in; the autograd.Function that it belongs to."""
    definition = use.definition()
    if definition is None or is_test(definition):
        return None
    if isinstance(definition, ast.ClassDef):
        if is_autograd(use, definition):
            return _Written(use.path, definition)
        methods = [a.name for a in use.around() if isinstance(a, ast.FunctionDef)]
        return _Written(use.path, definition, methods[-1] if methods else "")
    level = [definition]
    for _ in range(_DEEPEST):
        callers = [caller for each in level for caller in search.uses(use.path, each)]
        inside = [(caller, caller.definition()) for caller in callers if caller.path == use.path]
        for caller, around in inside:
            if isinstance(around, ast.ClassDef) and is_autograd(caller, around):
                return _Written(caller.path, around)
        level = [around for _, around in inside if isinstance(around, ast.FunctionDef)]
    return _Written(use.path, definition)


def is_autograd(use: Use, definition: ast.ClassDef) -> bool:
    return any(use.names.qualified(base) == _FUNCTION for base in definition.bases)


def _part(search: Search, written: _Written) -> KernelPart:
    kernels = [*written.kernels.values()]
    definition, method = written.definition, written.method
    if definition is None:
        return _of_kernel(search, kernels, written.uses)
    uses = search.uses(written.path, definition)
    calls = [place for use in uses if (place := place_of(use)) is not None][:_CALLS]
    found = references(search, written.path, definition)
    if isinstance(definition, ast.FunctionDef):
        return KernelPart(
            definition.name, *_parameters(definition.args, 0), definition.name, written.path,
            definition.lineno, False, kernels, calls, found,
        )  # fmt: skip
    name = _snake(definition.name)
    function = _method(definition, method or "forward")
    given = _parameters(function.args, 1) if function is not None else ("*inputs", ["*inputs"])
    return KernelPart(
        f"{name}_{method}" if method else name, *given,
        "" if method else f"{definition.name}.apply", written.path, definition.lineno, not method,
        kernels, calls, found,
    )  # fmt: skip


def _of_kernel(search: Search, kernels: Sequence[Kernel], uses: Sequence[Use]) -> KernelPart:
    """Of a kernel that no function of the program launches."""
    kernel = kernels[0]
    found = [place for use in uses for place in compared(use)] or [*named(search, kernel.name)]
    return KernelPart(
        kernel.name, ", ".join(kernel.parameters), kernel.parameters, "", kernel.path, kernel.line,
        False, kernels, (), found[:_CALLS],
    )  # fmt: skip


def _method(definition: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    methods = (m for m in definition.body if isinstance(m, ast.FunctionDef))
    return next((m for m in methods if m.name == name), None)


def _parameters(arguments: ast.arguments, skipped: int) -> tuple[str, Sequence[str]]:
    """As they are written in a `def`, without annotations and the first ones; and their names."""
    said: list[str] = []
    names: list[str] = []
    keyword_only = {a.arg for a in arguments.kwonlyargs}
    for argument, default in [*parameters_of(arguments)][skipped:]:
        if argument is arguments.vararg or argument is arguments.kwarg:
            stars = "*" if argument is arguments.vararg else "**"
            said.append(f"{stars}{argument.arg}")
            continue
        if argument.arg in keyword_only and not any(s.startswith("*") for s in said):
            said.append("*")
        said.append(argument.arg + (f"={_default(default)}" if default is not None else ""))
        names.append(argument.arg)
    return ", ".join(said), names


def _default(node: ast.expr) -> str:
    """A default that means the same elsewhere; `...` for another."""
    try:
        ast.literal_eval(node)
    except ValueError:
        return "..."
    return ast.unparse(node)


def _snake(name: str) -> str:
    """`LigerRMSNormFunction` as `liger_rms_norm_function`."""
    words: Iterator[str] = iter(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|\d+", name))
    return "_".join(words).lower()
