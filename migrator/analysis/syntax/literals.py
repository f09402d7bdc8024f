"""Expressions that are literals, or a choice between some."""

from __future__ import annotations

import ast


def leaves(value: ast.expr) -> list[ast.expr]:
    """What an expression may be: the branches of `a if … else b`."""
    if isinstance(value, ast.IfExp):
        return [*leaves(value.body), *leaves(value.orelse)]
    return [value]


def values(value: ast.expr) -> list[object]:
    """The values that an expression may have, `...` for what is not known."""
    return [_value(leaf) for leaf in leaves(value)]


def _value(leaf: ast.expr) -> object:
    try:
        return ast.literal_eval(leaf)
    except (ValueError, TypeError, SyntaxError):
        return ...
