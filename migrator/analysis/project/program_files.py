"""Program files: where a program's files read a name or an attribute, or call a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.syntax.names import Names, Scope
from migrator.analysis.values.flow import Flow


class ProgramFile:
    """One file's uses of names; `project` gives the others, and is None for a snippet."""

    def __init__(self, names: Names, flow: Flow, project: ProjectFacts | None) -> None:
        self.names, self.flow, self.project = names, flow, project

    def files(self, *words: str, beside: bool = True) -> Iterator[ProgramFile]:
        """This file, and the project files that import it or that it imports, with such a word.

        ``beside``: those in neighbouring folders, too.
        """
        yield self
        if (here := self.project) is None:
            return
        found = dict.fromkeys([*here.importers(), *here.reached()])
        if beside:
            found |= dict.fromkeys(here.modules_beside())
        letters = [word.encode() for word in words]
        for path in found:
            content = here.cache.file(path).content
            if path == here.path or not any(word in content for word in letters):
                continue
            facts = here.cache.facts(path)
            if facts is not None:
                yield ProgramFile(facts.names, facts.flow, here.of(path))

    def definition(self, node: ast.expr) -> tuple[ProgramFile, ast.AST] | None:
        """The program's function or class that an expression refers to."""
        local = self.flow.definition(node)
        if local is not None:
            return self, local
        meaning = self.names.qualified(node)
        found = self.project.definition(meaning) if self.project and meaning else None
        if found is None:
            return None
        facts, there, node_there = found
        return ProgramFile(facts.names, facts.flow, there), node_there

    def is_taken(self, name: str) -> bool:
        """Whether other files may import a name of this one; never for a script."""
        project = self.project
        return (
            project is not None and not project.has_main_guard() and name in project.taken_names()
        )

    def scope(self, name: ast.Name) -> Scope | None:
        """The scope that binds a name."""
        at: Scope | None = self.names.scope_of(name)
        while at is not None and name.id not in at.bindings:
            at = at.parent
        return at


def attributes(names: Names, attribute: str) -> Iterator[ast.Attribute]:
    """Where a file reads an attribute of that name, of any object."""
    for node in names.by_attribute.get(attribute, ()):
        if isinstance(node.ctx, ast.Load):
            yield node


def mentions(file: ProgramFile, function: ast.FunctionDef, is_method: bool) -> Iterator[ast.expr]:
    """Where a file refers to a function, or may refer to a method."""
    names = file.names
    others = (
        alias.asname
        for statement in names.imports
        for alias in statement.names
        if alias.name == function.name and alias.asname
    )
    called = [] if is_method else sorted({function.name, *others})
    for name in (node for each in called for node in names.by_id.get(each, ())):
        if isinstance(name.ctx, ast.Load):
            brought = not names.lookup(name) and bool(names.star_imports)
            if brought or _is_definition(file, name, function):
                yield name
    for node in attributes(names, function.name):
        if _is_definition(file, node, function) or (is_method and names.qualified(node) is None):
            yield node


def _is_definition(file: ProgramFile, node: ast.expr, function: ast.FunctionDef) -> bool:
    found = file.definition(node)
    return found is not None and (
        found[1] is function
        or (isinstance(found[1], ast.FunctionDef) and found[1].lineno == function.lineno
            and found[1].name == function.name)
    )  # fmt: skip


def is_decorated(names: Names, function: ast.FunctionDef) -> bool:
    """Whether a decorator may change a function's parameters or result."""
    plain = {"torch.no_grad", "torch.inference_mode"}
    return not all(
        names.qualified(each.func if isinstance(each, ast.Call) else each) in plain
        for each in function.decorator_list
    )


def is_overridden(at: ProgramFile, method: str) -> bool:
    if len(at.names.owners.get(method, ())) > 1:
        return True
    return at.project is not None and any(at.project.defining(method))
