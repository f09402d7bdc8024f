"""Types that are only named, so that what they can do does not matter."""

from __future__ import annotations

import ast

from migrator.analysis.names import Names


def is_question_of_type(node: ast.Compare) -> bool:
    """`type(x) is DTensor`, `library is not None`"""
    sides = (node.left, *node.comparators)
    return any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Call) and getattr(side.func, "id", "") == "type")
        for side in sides
    )


def is_only_named(names: Names, node: ast.expr) -> bool:
    """Whether a class is only named: in an annotation, or in a question about a value."""
    below: ast.AST = node
    while (parent := names.parents.get(below)) is not None:
        match parent:
            case ast.Subscript() | ast.BinOp(op=ast.BitOr()) | ast.Tuple():
                below = parent
            case ast.arg():
                return True
            case ast.AnnAssign(annotation=annotation):
                return annotation is below
            case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
                return returns is below
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                return kinds is below
            case ast.Call(func=ast.Name(id="hasattr"), args=[asked, ast.Constant()]):
                return asked is below
            case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq()]):
                return is_question_of_type(parent)
            case ast.ExceptHandler(type=kinds):
                return kinds is below
            case _:
                return False
    return False
