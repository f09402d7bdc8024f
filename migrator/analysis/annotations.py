"""Types that are only named, so that what they can do does not matter."""

from __future__ import annotations

import ast

from migrator.analysis.names import Names


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
            case _:
                return False
    return False
