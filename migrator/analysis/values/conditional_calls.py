"""Calls under a condition in one expression: `f() if cuda else None`, `cuda and f()`."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Names
from migrator.analysis.values.effects import Effects


def is_no_more_than(call: ast.Call, value: ast.expr, effects: Effects) -> bool:
    """Whether an expression has no effect but that of a call in it."""
    match value:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return effects.none(test) and all(
                is_no_more_than(call, each, effects) or effects.none(each)
                for each in (body, orelse)
            )
        case ast.BoolOp(values=[*tests, last]):
            return effects.none(*tests) and is_no_more_than(call, last, effects)
    return value is call


def none_around(call: ast.Call, names: Names, effects: Effects) -> ast.expr:
    """A call that gives None, or `call if cuda else None`, which does in any case."""
    match parent := names.parents.get(call):
        case ast.IfExp(test=test, body=body, orelse=orelse) if test is not call:
            other = orelse if body is call else body
            if isinstance(other, ast.Constant) and other.value is None and effects.none(test):
                return parent
    return call
