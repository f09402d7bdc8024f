"""`d[mask] = x[mask]` with a mask that compares `d`: a choice between two tensors of one shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind

_ELEMENTWISE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_TO_ANOTHER_SHAPE = frozenset({
    "resize_", "resize_as_", "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_",
    "swapdims_", "set_", "as_strided_", "data",
})  # fmt: skip
# Methods that give a tensor, or several, of a tensor. (No `expand`: its result can't be copied to.)
_OF_TENSORS = frozenset({
    "abs", "bool", "chunk", "clamp", "clone", "contiguous", "cuda", "detach", "double", "exp",
    "flatten", "flip", "float", "gather", "half", "int", "long", "masked_fill", "max", "mean",
    "min", "permute", "repeat", "reshape", "sort", "split", "sqrt", "squeeze", "sum", "to", "topk",
    "transpose", "type", "type_as", "unsqueeze", "view", "view_as",
})  # fmt: skip


@dataclass(frozen=True)
class MaskedAssignment:
    """Where ``mask`` holds, ``target`` gets the values of ``value``."""

    target: ast.expr
    value: ast.expr
    mask: ast.expr


def masked_assignment(names: Names, flow: Flow, node: ast.Assign) -> MaskedAssignment | None:
    """The assignment, if its target and its value are shown to be tensors of the mask's shape.

    A mask that compares the target has as many dimensions as it, or more, and selects from it: so
    they have one shape. The mask selects from the value, too, which can have no further dimensions:
    there is no place for them in the target.
    """
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=target, slice=mask)],
            value=ast.Subscript(value=value, slice=same),
        ) if ast.dump(mask) == ast.dump(same):
            name = dotted(target)
            if name is None or dotted(value) in (None, name):
                return None
            if not (_is_tensor(names, flow, target) and _is_tensor(names, flow, value)):
                return None
            if _is_mask_of(names, node, mask, name):
                return MaskedAssignment(target, value, mask)
    return None


def _is_tensor(
    names: Names, flow: Flow, node: ast.expr | None, asked: frozenset[int] = frozenset()
) -> bool:
    """Whether all that a value is made of are tensors: NumPy's arrays have masks, too.

    `asked` are names that it is part of: `x = x.view(2, 3)` keeps what `x` is.
    """
    match node:
        case ast.Name():
            bound = names.lookup(node)
            if id(bound) in asked:
                return True
            asked |= {id(bound)}
            return bool(bound) and all(
                each.kind == "assign" and _is_tensor(names, flow, each.value, asked)
                for each in bound
            )
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if method in _OF_TENSORS:
            if names.qualified(node.func) is None:
                return _is_tensor(names, flow, owner, asked)
        case ast.Subscript(value=owner) | ast.UnaryOp(operand=owner):
            return _is_tensor(names, flow, owner, asked)
        case ast.BinOp(left=left, right=right):
            return any(_is_tensor(names, flow, side, asked) for side in (left, right))
    return node is not None and flow.kind(node) == Kind.TENSOR


def _is_mask_of(names: Names, node: ast.Assign, mask: ast.expr, target: str) -> bool:
    """Whether a mask has the target's shape: written here, or bound to a name above."""
    if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
        return _is_mask_of(names, node, mask.operand, target)
    if not isinstance(mask, ast.Name):  # it is computed twice, and would be once
        calls = any(isinstance(part, ast.Call | ast.NamedExpr) for part in ast.walk(mask))
        return not calls and _compares(mask, target)
    if len(names.lookup(mask)) != 1:
        return False
    for statement in _above(names, node):
        match statement:
            case ast.Assign(targets=[ast.Name(id=mask.id)], value=value):
                return _compares(value, target)
        if any(_may_reshape(part, target) for part in ast.walk(statement)):
            return False
    return False


def _compares(mask: ast.expr, target: str) -> bool:
    """Whether a mask consists of comparisons, of which one is of the target itself."""
    comparisons = [*_comparisons(mask)]
    return None not in comparisons and any(
        target in map(dotted, (each.left, *each.comparators)) for each in comparisons if each
    )


def _comparisons(mask: ast.expr) -> Iterator[ast.Compare | None]:
    """The comparisons of `(d > 0) & ~(d > x)`, and None for anything else: it may be no mask."""
    match mask:
        case ast.Compare(ops=[op]) if isinstance(op, _ELEMENTWISE):
            yield mask
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            yield from _comparisons(operand)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()):
            yield from _comparisons(mask.left)
            yield from _comparisons(mask.right)
        case _:
            yield None


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


def _may_reshape(part: ast.AST, target: str) -> bool:
    match part:
        case ast.Attribute(attr=attr, value=owner) if attr in _TO_ANOTHER_SHAPE:
            return dotted(owner) == target
        case ast.Name(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
            return dotted(part) == target
        case ast.Call():  # may give an attribute another value
            return "." in target
    return False
