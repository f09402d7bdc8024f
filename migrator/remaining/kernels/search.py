"""Where the functions of a project are used, and what the names in a call stand for."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scopes import Binding

from .kernel import KernelCall

Definition = ast.FunctionDef | ast.ClassDef
_VALUES = 8  # of a call, that are shown
_DEEPEST = 2  # a name, and the names that it is computed from


@dataclass(frozen=True)
class Use:
    """A name in a file that stands for a function or class of the project."""

    path: Path
    names: Names
    node: ast.expr

    def around(self) -> Iterator[ast.AST]:
        return self.names.ancestors(self.node)

    def definition(self) -> Definition | None:
        """The function or class, at the top of the file, that it is in."""
        found = [a for a in self.around() if isinstance(a, ast.FunctionDef | ast.ClassDef)]
        return found[-1] if found else None


class Search:
    """Looks through all files of the project that a file belongs to."""

    def __init__(self, project: ProjectFacts) -> None:
        self.project = project
        self._found: dict[tuple[Path, str], list[Use]] = {}

    @cached_property
    def paths(self) -> Sequence[Path]:
        return sorted({self.project.path, *self.project.modules_of_project()})

    def uses(self, path: Path, definition: Definition) -> list[Use]:
        """The uses of a function or class that is defined at the top of a file."""
        key = path, definition.name
        if key not in self._found:
            self._found[key] = [*self._uses(path, definition)]
        return self._found[key]

    def _uses(self, path: Path, definition: Definition) -> Iterator[Use]:
        for other, names in self.files_with(definition.name):
            for node in (*names.all(ast.Name), *names.all(ast.Attribute)):
                if self._is_meant(other, names, node, path, definition):
                    yield Use(other, names, node)

    def files_with(self, word: str) -> Iterator[tuple[Path, Names]]:
        """The files that contain a word, or one that begins or ends with it."""
        for path in self.paths:
            if word.encode() in self.project.cache.file(path).content:
                facts = self.project.cache.facts(path)
                if facts is not None:
                    yield path, facts.names

    def _is_meant(
        self, other: Path, names: Names, node: ast.expr, path: Path, definition: Definition
    ) -> bool:
        if not isinstance(getattr(node, "ctx", None), ast.Load):
            return False
        if other == path and isinstance(node, ast.Name):
            bound = names.lookup(node) if node.id == definition.name else ()
            return any(binding.node is definition for binding in bound)
        qualified = names.qualified(node)
        if not qualified or qualified.rpartition(".")[2] != definition.name:
            return False
        found = self.project.of(other).definition(qualified)
        return found is not None and found[2] is definition and found[1].path == path


def on_one_line(text: str) -> str:
    """Source text on one line, and not all of it if it is long."""
    return textwrap.shorten(text, 160, placeholder=" …")


def place_of(use: Use) -> KernelCall | None:
    """The call of what a name stands for."""
    call = called(use)
    if call is None:
        return None
    return KernelCall(
        use.path, call.lineno, on_one_line(ast.unparse(call)), values(use.names, call)
    )


def with_other_names(use: Use) -> list[Use]:
    """A use, or those of the names that it is assigned to: `f = fast if wide else narrow`."""
    statement = use.names.statement(use.node)
    match statement:
        case ast.Assign(targets=[ast.Name() as target], value=ast.Name() | ast.IfExp()):
            scope = use.names.scope_of(target)
            return [Use(use.path, use.names, node) for node in use.names.uses(target.id, scope)]
    return [use]


def called(use: Use) -> ast.Call | None:
    """The call of what a name stands for: `f(x)`, `F.apply(x)`."""
    below: ast.AST = use.node
    for node in use.around():
        if isinstance(node, ast.Call):
            return node if node.func is below else None
        if not isinstance(node, ast.Attribute) or node.attr != "apply":
            return None
        below = node
    return None


def values(names: Names, code: ast.AST) -> list[str]:
    """The lines that the names in code come from: `n = x.numel()`, `x = torch.rand(98432)`."""
    found: dict[str, None] = {}
    _follow(names, code, _line(code), 0, found)
    return [*found][:_VALUES]


def _follow(names: Names, node: ast.AST, before: int, depth: int, found: dict[str, None]) -> None:
    for name in (n for n in ast.walk(node) if isinstance(n, ast.Name)):
        binding = bound_before(names, name, before)
        if binding is None or (said := _said(names, name, binding)) is None:
            continue
        if said not in found:
            found[said] = None
            if depth < _DEEPEST and binding.kind in ("assign", "item") and binding.value:
                _follow(names, binding.value, _line(binding.node), depth + 1, found)


def bound_before(names: Names, name: ast.Name, line: int) -> Binding | None:
    """The last binding of a name above a line, if it is neither an import nor a definition."""
    bindings = [b for b in names.lookup(name) if _line(b.node) <= line]
    found = bindings[-1] if bindings else None
    return None if found is None or found.kind in ("import", "def", "class") else found


def _said(names: Names, name: ast.Name, binding: Binding) -> str | None:
    """The source text of what a name is."""
    if binding.kind == "param":
        return _parametrized(names, name.id, binding)
    if binding.kind == "loop" and binding.value is not None:
        return f"{name.id} in {on_one_line(ast.unparse(binding.value))}"
    statement = names.statement(binding.node)
    if binding.kind not in ("assign", "item") or not isinstance(statement, ast.Assign):
        return None
    return on_one_line(ast.unparse(statement))


def _parametrized(names: Names, name: str, binding: Binding) -> str | None:
    """A parameter's default or annotation; that of a test has the values of parametrize."""
    function = names.parents.get(binding.node)
    for decorator in getattr(function, "decorator_list", ()):
        match decorator:
            case ast.Call(func=ast.Attribute(attr="parametrize"),
                          args=[ast.Constant(value=str(all_names)), given, *_]):  # fmt: skip
                if name in re.findall(r"\w+", all_names):
                    return f"{all_names} in {on_one_line(ast.unparse(given))}"
    annotation = f": {ast.unparse(binding.annotation)}" if binding.annotation else ""
    default = f" = {ast.unparse(binding.value)}" if binding.value else ""
    return on_one_line(f"{name}{annotation}{default}") if annotation or default else None


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))
