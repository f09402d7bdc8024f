"""Nesting: how deeply expressions lie in one another. Nobody writes a thousand levels.

LibCST takes time that grows with the square of the depth, or more, and a lot of memory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import accumulate

MOST = 500  # levels of an expression


def parse(text: str) -> ast.Module:
    """The tree of a program.

    Raises what `ast.parse` raises, and RecursionError where an expression is too deep for us.
    """
    tree = ast.parse(text)
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]  # it only has to be large
    for expression in _expressions(tree):
        lines = starts[min(expression.end_lineno or 0, len(starts) - 1)]
        if lines - starts[expression.lineno - 1] > MOST and _depth(expression) > MOST:
            raise RecursionError(f"line {expression.lineno} has more than {MOST} levels")
    return tree


def _expressions(tree: ast.Module) -> Iterator[ast.expr]:
    """The expressions that lie in no other."""
    left: list[ast.AST] = [tree]
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            if isinstance(child, ast.expr):
                yield child
            else:
                left.append(child)


def _depth(expression: ast.expr) -> int:
    depth, level = 0, list[ast.AST]([expression])
    while level and depth <= MOST:
        depth += any(isinstance(node, ast.expr) for node in level)
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    return depth
