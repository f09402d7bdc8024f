"""`d[mask] = x[mask]` with a mask that compares both: a choice between two tensors of one shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.kinds import Kind

_ELEMENTWISE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_TO_ANOTHER_SHAPE = frozenset({
    "resize_", "resize_as_", "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_",
    "swapdims_", "set_", "as_strided_", "data",
})  # fmt: skip


@dataclass(frozen=True)
class MaskedAssignment:
    """Where ``mask`` holds, ``target`` gets the values of ``value``."""

    target: ast.expr
    value: ast.expr
    mask: ast.expr


def masked_assignment(names: Names, flow: Flow, node: ast.Assign) -> MaskedAssignment | None:
    """The assignment, if its target and its value are shown to be tensors of the mask's shape.

    The mask has as many dimensions as the larger one of those that it compares, and selects from
    both: so neither has fewer or more, and each size is that of the mask.
    """
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=target, slice=mask)],
            value=ast.Subscript(value=value, slice=same),
        ) if ast.dump(mask) == ast.dump(same):
            sides = {dotted(target), dotted(value)}
            if None in sides or len(sides) == 1:
                return None
            if not (_is_tensor(names, flow, target) and _is_tensor(names, flow, value)):
                return None
            inner = mask
            while isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Invert):
                inner = inner.operand
            if _compares(inner, sides) or _is_bound_to_comparison(names, node, inner, sides):
                return MaskedAssignment(target, value, mask)
    return None


def _is_tensor(names: Names, flow: Flow, node: ast.expr) -> bool:
    """Whether all that it is bound to are tensors: NumPy's arrays have masks, too."""
    bound = names.lookup(node) if isinstance(node, ast.Name) else []
    return flow.kind(node) == Kind.TENSOR and all(
        each.value is not None and flow.kind(each.value) == Kind.TENSOR for each in bound
    )


def _compares(mask: ast.expr, sides: set[str | None]) -> bool:
    match mask:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return isinstance(op, _ELEMENTWISE) and {dotted(left), dotted(right)} == sides
    return False


def _is_bound_to_comparison(
    names: Names, node: ast.Assign, mask: ast.expr, sides: set[str | None]
) -> bool:
    """Whether a statement above makes the mask, and none between changes a shape."""
    if not isinstance(mask, ast.Name) or len(names.lookup(mask)) != 1:
        return False
    for statement in _above(names, node):
        match statement:
            case ast.Assign(targets=[ast.Name(id=mask.id)], value=value):
                return _compares(value, sides)
        if any(_may_reshape(part, sides) for part in ast.walk(statement)):
            return False
    return False


def _above(names: Names, node: ast.stmt) -> Iterator[ast.AST]:
    """What runs before a statement, the last first: up to the loop or function around it."""
    while True:
        block = names.block(node)
        yield from reversed(block[: block.index(node)])
        outer = names.parents.get(node)
        if not isinstance(outer, ast.If):
            return
        yield outer.test
        node = outer


def _may_reshape(part: ast.AST, sides: set[str | None]) -> bool:
    match part:
        case ast.Attribute(attr=attr, value=owner) if attr in _TO_ANOTHER_SHAPE:
            return dotted(owner) in sides
        case ast.Name(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
            return dotted(part) in sides
        case ast.Call():  # may give an attribute another value
            return any(side is not None and "." in side for side in sides)
    return False
