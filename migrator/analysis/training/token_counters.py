"""Attributes with which a model counts the tokens that it has received.

    def __init__(self):
        self.position = 0

    def forward(self, x):
        places = torch.arange(self.position, self.position + n)
        self.position += n

    def reset(self):
        self.position = 0

In these forms all uses of the number are known: it may be a tensor as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.analysis.training.token_positions import TokenPositions

MODULE = ("torch.nn.Module", "torch.nn.modules.module.Module")


@dataclass
class Counter:
    """`self.name`, which counts from 0."""

    owner: ast.ClassDef
    name: str
    begins: ast.Assign
    places: TokenPositions
    resets: list[ast.Assign] = field(default_factory=list)
    grows: list[ast.AugAssign] = field(default_factory=list)


@once_in
def token_counters(names: Names, tree: ast.Module) -> list[Counter]:
    """The token counters of a file's modules."""
    if not any(isinstance(node, ast.AugAssign) for node in names.order):
        return []
    return [
        counter
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        if any(names.qualified(base) in MODULE for base in owner.bases)
        for begins in _zeros(_method(owner, "__init__"))
        if (counter := _counter(names, owner, begins)) is not None
    ]


def _method(owner: ast.ClassDef, name: str) -> list[ast.stmt]:
    methods = (m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == name)
    return next((m.body for m in methods), [])


def _zeros(body: list[ast.stmt]) -> Iterator[ast.Assign]:
    """`self.position = 0`, after the call of the module's own `__init__`"""
    begun = False
    for statement in body:
        begun |= isinstance(statement, ast.Expr) and "__init__(" in ast.unparse(statement)
        if begun and isinstance(statement, ast.Assign) and _own_zero(statement):
            yield statement


def _own_zero(statement: ast.AST) -> str:
    match statement:
        case ast.Assign([ast.Attribute(ast.Name("self"), name)], ast.Constant(number)):
            return name if type(number) is int and number == 0 else ""
    return ""


def _is_own(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Attribute(ast.Name("self"), attr):
            return attr == name
    return False


def _counter(names: Names, owner: ast.ClassDef, begins: ast.Assign) -> Counter | None:
    name = _own_zero(begins)
    made = Counter(owner, name, begins, TokenPositions(f"self.{name}"))
    for node in names.order:
        if isinstance(node, ast.Constant) and node.value == made.name:
            return None  # through `getattr`, or a table
        if isinstance(node, ast.Attribute) and node.attr == made.name:
            if not _is_own(node, made.name):
                return None
            if names.enclosing_class(node) is owner and not _note(names, made, node):
                return None
    return made if made.grows and (made.places.ranges or made.places.slices) else None


def _note(names: Names, made: Counter, node: ast.Attribute) -> bool:
    """Record a use of the number, if it is a known one."""
    above = names.parents[node]
    match above:
        case ast.Assign():
            if above is not made.begins:
                made.resets.append(above)
            return _own_zero(above) == made.name
        case ast.AugAssign(target, ast.Add(), ast.Name() | ast.Subscript() | ast.Call()):
            made.grows.append(above)
            return target is node
    return made.places.note(names, node)
