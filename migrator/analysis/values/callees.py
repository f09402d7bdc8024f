"""Callees: the functions of a project that a call may reach."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.import_protocols import Imported

_SAME_OBJECT = ("to", "cuda", "cpu", "float", "double", "half", "eval", "train")


@dataclass(frozen=True, eq=False)
class Callees:
    """Those of one file; `project` knows the functions that it imports."""

    names: Names
    flow: Flow
    project: Imported | None = None

    def called(self, call: ast.Call) -> list[ast.FunctionDef]:
        """The functions of the project that a call may reach."""
        return [definition for _, definition in self.definitions(call.func)]

    def definitions(self, function: ast.expr) -> list[tuple[Self, ast.FunctionDef]]:
        """The functions of the project that a call may reach, and the files that they are in."""
        if isinstance(function, ast.IfExp):
            branches = [self.definitions(function.body), self.definitions(function.orelse)]
            return [d for found in branches for d in found] if all(branches) else []
        local = self.flow.called_definition(ast.Call(function, [], []))
        if isinstance(local, ast.FunctionDef):
            return [(self, local)]
        if isinstance(function, ast.Name):
            bindings = self.names.lookup(function)
            if len(bindings) == 1 and isinstance(bindings[0].value, ast.IfExp):
                return self.definitions(bindings[0].value)
        if local is not None:
            return []
        found = self.imported(function)
        if found is not None and isinstance(found[1], ast.FunctionDef):
            return [(found[0], found[1])]
        if isinstance(function, ast.Attribute):
            owner = self.class_of(function.value)
            method = owner[0]._method(owner[1], function.attr) if owner is not None else None
            return [method] if method is not None else []
        return []

    def called_lambda(self, function: ast.expr) -> tuple[Self, ast.Lambda] | None:
        """The lambda that a name is bound to, here or where it is imported from."""
        if not isinstance(function, ast.Name):
            return None
        bindings = self.names.lookup(function)
        if len(bindings) == 1 and isinstance(bindings[0].value, ast.Lambda):
            return self, bindings[0].value
        for candidate in self._spellings(function) if self.project is not None else ():
            assert self.project is not None
            found = self.project.assigned(candidate)
            if found is not None and isinstance(found[2], ast.Lambda):
                return type(self)(found[0].names, found[0].flow, found[1]), found[2]
        return None

    def _spellings(self, name: ast.expr) -> list[str]:
        """What a name may be called where it comes from; a star import says nothing of it."""
        qualname = self.names.qualified(name)
        candidates = [qualname] if qualname else []
        if isinstance(name, ast.Name) and not self.names.lookup(name):
            candidates += [f"{module}.{name.id}" for module in self.names.star_imports]
        return candidates

    def imported(self, name: ast.expr) -> tuple[Self, ast.FunctionDef | ast.ClassDef] | None:
        """What a name is that another file of the project defines, and that file."""
        if self.project is None:
            return None
        for candidate in self._spellings(name):
            found = self.project.definition(candidate)
            if found is not None:
                facts, there, definition = found
                return type(self)(facts.names, facts.flow, there), definition
        return None

    def class_of(self, node: ast.expr) -> tuple[Self, ast.ClassDef] | None:
        """The class of the project whose object a variable holds: `agent = Agent(envs).to(dev)`."""
        values = [b.value or b.annotation for b in self.bindings(node)]
        if len(values) != 1:
            return None
        value = values[0]
        while isinstance(value, ast.Call):
            chained = isinstance(value.func, ast.Attribute) and value.func.attr in _SAME_OBJECT
            value = value.func.value if chained else value.func  # type: ignore[attr-defined]
        if not isinstance(value, ast.Name | ast.Attribute):
            return None
        local = self.flow.called_definition(ast.Call(value, [], []))
        if isinstance(local, ast.ClassDef):
            return self, local
        found = self.imported(value)
        return (found[0], found[1]) if found and isinstance(found[1], ast.ClassDef) else None

    def bindings(self, node: ast.expr) -> Sequence[Binding]:
        if isinstance(node, ast.Name):
            return self.names.lookup(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = self.names.owner_class(node.value)
            values = self.names.class_attributes[owner].get(node.attr, ()) if owner else ()
            return [Binding("assign", node, value) for value in values]
        return []

    def _method(
        self, owner: ast.ClassDef, name: str, depth: int = 0
    ) -> tuple[Self, ast.FunctionDef] | None:
        for statement in owner.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return self, statement
        for base in owner.bases if depth < 8 else ():
            local = self.flow.called_definition(ast.Call(base, [], []))
            found = (self, local) if isinstance(local, ast.ClassDef) else self.imported(base)
            if found is not None and isinstance(found[1], ast.ClassDef):
                method = found[0]._method(found[1], name, depth + 1)
                if method is not None:
                    return method
        return None
