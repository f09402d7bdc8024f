"""Values of a file that other files of its program use as a device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.syntax.names import Names


def is_device_elsewhere(project: ProjectFacts, names: Names, value: ast.expr) -> bool:
    """`class Conf: gpu = "cuda"`, where another file has `device=Conf.gpu`."""
    name = _stored_as(names, value)
    return name is not None and any(path == name for path in _devices_from(project, name[-1]))


def _stored_as(names: Names, value: ast.expr) -> tuple[str, ...] | None:
    """The name of a variable of the module, or of a class and its attribute."""
    match names.parents.get(value):
        case (
            ast.Assign(targets=[ast.Name() as target]) | ast.AnnAssign(target=ast.Name() as target)
        ):
            scope = names.scope_of(target)
            if scope is names.top:
                return (target.id,)
            if isinstance(scope.node, ast.ClassDef) and scope.node in names.tree.body:
                return (scope.node.name, target.id)
    return None


def _devices_from(project: ProjectFacts, word: str) -> Iterator[tuple[str, ...]]:
    """The names of this file that others give where only devices are accepted."""
    for path in project.importers():
        file = project.cache.file(path)
        if word.encode() not in file.content or (facts := file.facts) is None:
            continue
        there = project.of(path)
        for node in facts.names.order:
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            if not facts.flow.is_given_as_device(node):
                continue
            whole = facts.names.qualified(node) or ""
            owner, _, attribute = whole.rpartition(".")
            for name, rest in ((whole, ()), (owner, (attribute,))):
                found = there.origin(name) if name else None
                if found is not None and found[1].path == project.path:
                    yield (found[2], *rest)
