"""Types that are only named, so that their behaviour doesn't matter."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import parameters


def is_question_of_type(node: ast.Compare) -> bool:
    """`type(x) is DTensor`, `library is not None`"""
    sides = (node.left, *node.comparators)
    return any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Call) and getattr(side.func, "id", "") == "type")
        for side in sides
    )


def whole_type(parents: Mapping[ast.AST, ast.AST], node: ast.AST) -> ast.AST:
    """The whole type that a class is part of: `tuple[Net, ...]`, `Net | None`."""
    while isinstance(parent := parents.get(node), ast.Subscript | ast.Tuple) or (
        isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.BitOr)
    ):
        node = parent
    return node


def is_type(parent: ast.AST | None, whole: ast.AST) -> bool:
    """Whether it is in an annotation or in isinstance, which create no instance."""
    match parent:
        case ast.AnnAssign(annotation=kinds):
            return kinds is whole
        case (
            ast.FunctionDef(args=taken, returns=kinds)
            | ast.AsyncFunctionDef(args=taken, returns=kinds)
        ):
            return whole in (kinds, *(each.annotation for each, _ in parameters(taken)))
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            return kinds is whole
    return False


def is_only_named(names: Names, node: ast.expr) -> bool:
    """Whether a class is only named: in an annotation, or in a test of a value."""
    whole = whole_type(names.parents, node)
    match parent := names.parents.get(whole):
        case ast.Call(func=ast.Name(id="hasattr"), args=[asked, ast.Constant()]):
            return asked is whole
        case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq()]):
            return is_question_of_type(parent)
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), ops=[ast.In() | ast.NotIn()]):
            return whole is not parent.left
        case ast.ExceptHandler(type=kinds):
            return kinds is whole
    return is_type(parent, whole)
