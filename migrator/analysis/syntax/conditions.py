"""Conditions: those that lead to a statement or an expression, and how they have to turn out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping


def asked_before(
    parents: Mapping[ast.AST, ast.AST], node: ast.AST, within: ast.AST
) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions inside of `within` that lead to a node, with the required outcomes."""
    below = node
    while below is not within and (parent := parents.get(below)) is not None:
        match parent:
            case ast.If(test=test) | ast.While(test=test) if below is not test:
                yield test, below in parent.body
            case ast.IfExp(test=test) if below is not test:
                yield test, below is parent.body
            case ast.BoolOp(op=op, values=values):
                place = next(i for i, value in enumerate(values) if value is below)
                yield from ((value, isinstance(op, ast.And)) for value in values[:place])
        for block in ("body", "orelse", "finalbody"):
            listed = getattr(parent, block, None)
            if isinstance(listed, list) and below in listed:
                for earlier in listed[: listed.index(below)]:
                    if isinstance(earlier, ast.If) and not earlier.orelse and _leaves(earlier):
                        yield earlier.test, False
        below = parent


def _leaves(branch: ast.If) -> bool:
    return isinstance(branch.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
