"""Statements between attention scores and weights, as code writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mask:
    """Rows of a table, and the name they are assigned to, if any."""

    rows: ast.Subscript
    name: str = ""
    shows: bool = False  # 1 where a key is visible, not where it is hidden

    @property
    def texts(self) -> set[str]:
        """How what is hidden may be written."""
        texts = {ast.unparse(self.rows), self.name}
        return {f"{text} == 0" for text in texts} if self.shows else texts


def assigned(statement: ast.stmt | None) -> list[tuple[ast.expr, ast.expr]]:
    """The targets and values of a plain assignment, `a = x` or `a, b = x, y`; none of another."""
    match statement:
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
            return list(zip(targets, values, strict=True))
        case ast.Assign([ast.Name() | ast.Attribute() as target], value):
            return [(target, value)]
    return []


def stores_of(name: str, nodes: Iterable[ast.AST]) -> list[ast.Name]:
    """Where some of the nodes assign to a name, or delete it."""
    return [n for n in nodes if isinstance(n, ast.Name) and n.id == name
            and not isinstance(n.ctx, ast.Load)]  # fmt: skip


def size_of(node: ast.AST | None) -> tuple[str, str]:
    """The `x` and `-1` of `x.shape[-1]` or `x.size(-1)`."""
    match node:
        case ast.Subscript(ast.Attribute(ast.expr() as value, "shape"), key):
            return ast.unparse(value), ast.unparse(key)
        case ast.Call(ast.Attribute(ast.expr() as value, "size"), [key], []):
            return ast.unparse(value), ast.unparse(key)
    return "", ""


def stored(statement: ast.stmt) -> set[str]:
    return {n.id for target, _ in assigned(statement) for n in [target] if isinstance(n, ast.Name)}


def lowered(value: ast.expr, scores: str, mask: str) -> bool:
    """`scores * mask - 1e10 * (1 - mask)`: so low that the weight is zero, as with infinity"""
    match value:
        case ast.BinOp(
            ast.BinOp(ast.Name(one), ast.Mult(), ast.Name(two)),
            ast.Sub(),
            ast.BinOp(
                ast.Constant(float() | int() as low),
                ast.Mult(),
                ast.BinOp(ast.Constant(1), ast.Sub(), ast.Name(three)),
            ),
        ):
            return one == scores and two == three == mask and low >= 1e4
    return False


def unscaled(node: ast.expr) -> ast.expr:
    """The `scores` of `scores / size`."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
        node = node.left
    return node


def scales(statement: ast.stmt, scores: str) -> bool:
    match statement:
        case ast.If(test, body, []):
            named = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
            return scores not in named and all(scales(inner, scores) for inner in body)
        case ast.AugAssign(ast.Name(name), ast.Div() | ast.Mult(), _):
            return name == scores
        case ast.Assign([ast.Name(name)], ast.BinOp() as value) if name == scores:
            left = unscaled(value)
            return isinstance(left, ast.Name) and left.id == scores
    return False
