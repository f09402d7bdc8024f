"""`correct[:k].view(-1)` of what compares a transposed tensor.

Since PyTorch 1.7 the result lies in memory as the tensor does, so it has no such view. Accuracies
of programs that are older begin so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.construct import Construct

_VIEW = re.compile(rb"\]\s*\.view\(\s*-")
_TRANSPOSING = ("t", "transpose")
_COMPARING = ("eq", "ne")
_READING = ("double", "float", "int", "long", "sum", "to", "type")  # they don't write to the view


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file has none."""
    return _VIEW.search(source) is not None


def find(names: Names, call: ast.Call) -> Iterator[Construct]:
    match call:
        case ast.Call(
            func=ast.Attribute(
                attr="view", value=ast.Subscript(value=ast.Name() as part, slice=ast.Slice())
            ),
            args=[ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))],
            keywords=[],
        ):
            above, bound = names.parents.get(call), names.lookup(part)
            reads = isinstance(above, ast.Attribute) and above.attr in _READING
            if reads and bound and all(_compares_transposed(names, b.value) for b in bound):
                yield Construct("changed", "view", call)


def _compares_transposed(names: Names, value: ast.expr | None) -> bool:
    """`pred.eq(target)`, after `pred = pred.t()`"""
    match value:
        case ast.Call(func=ast.Attribute(attr=method, value=one), args=[other]) if (
            method in _COMPARING
        ):
            return _is_transposed(names, one) or _is_transposed(names, other)
        case ast.Compare(left=one, ops=[ast.Eq() | ast.NotEq()], comparators=[other]):
            return _is_transposed(names, one) or _is_transposed(names, other)
    return False


def _is_transposed(names: Names, node: ast.expr) -> bool:
    values = [b.value for b in names.lookup(node)] if isinstance(node, ast.Name) else [node]
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in _TRANSPOSING
        for each in values
    )
