"""Expressions that are literals, or a choice between several."""

from __future__ import annotations

import ast


def leaves(value: ast.expr) -> list[ast.expr]:
    """The expressions that one may evaluate to: the branches of `a if … else b`."""
    if isinstance(value, ast.IfExp):
        return [*leaves(value.body), *leaves(value.orelse)]
    return [value]


def values(value: ast.expr) -> list[object]:
    """The values that an expression may have, `...` for an unknown one."""
    return [_value(leaf) for leaf in leaves(value)]


def _value(leaf: ast.expr) -> object:
    try:
        return ast.literal_eval(leaf)
    except (ValueError, TypeError, SyntaxError):
        return ...
