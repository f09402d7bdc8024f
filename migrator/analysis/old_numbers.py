"""`loss.data[0]`: the number of a tensor that has no dimension since PyTorch 0.4."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis import name_heuristics
from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import said_name
from migrator.analysis.values.dimensionless import Dimensionless
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.import_protocols import Imported
from migrator.construct import Construct

_OF_VALUES = ("cpu", "detach", "numpy", "clone")


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file has no such expression."""
    return _READ.search(source) is not None


_READ = re.compile(
    rb"\.data\)\[0\]|\.(?:data|cpu\(\)|numpy\(\)|detach\(\)|clone\(\))\[0\]|\b(?:acc|err|prec|top)\w*\[0\]"
)


def find(
    names: Names, flow: Flow, project: Imported | None, node: ast.Subscript
) -> Iterator[Construct]:
    """The first element of a tensor's values, where the tensor has no dimension, or may have
    none."""
    numbers, owner = Dimensionless(names, flow, project), owner_of(node)
    if owner is None:
        if _is_part_of_result(names, node) and numbers.holds(node.value):
            yield Construct("changed", "number", node)  # prec1[0]
        return
    if _is_backward(numbers, owner) or numbers.holds(owner):
        yield Construct("changed", "number", node)
    elif _is_of_data(node.value) and _speaks_of_loss(names, owner):
        yield Construct("changed", "perhaps number", node)


def _is_of_data(value: ast.expr) -> bool:
    """`x.data`, or `np.array(x.data)`"""
    return isinstance(value, ast.Attribute) or (isinstance(value, ast.Call) and bool(value.args))


def _is_part_of_result(names: Names, node: ast.Subscript) -> bool:
    """`prec1[0]` of `prec1, prec5 = accuracy(output, target, (1, 5))`"""
    if not isinstance(node.slice, ast.Constant) or node.slice.value != 0:
        return False
    bound = names.lookup(node.value) if isinstance(node.value, ast.Name) else ()
    return len(bound) > 0 and all(each.kind == "item" for each in bound)


def owner_of(node: ast.Subscript) -> ast.expr | None:
    """The tensor of `x.data[0]`, `x.data.cpu().numpy()[0]`, `np.array(x.data)[0]`."""
    if not isinstance(node.slice, ast.Constant) or node.slice.value != 0:
        return None
    value: ast.expr = node.value
    while True:
        match value:
            case ast.Attribute(attr="data", value=inner):
                value = inner
            case ast.Call(func=ast.Attribute(attr=method, value=inner), args=[], keywords=[]) if (
                method in _OF_VALUES
            ):
                value = inner
            case ast.Call(
                func=ast.Attribute(attr="array" | "asarray"), args=[inner], keywords=[]
            ) if isinstance(inner, ast.Attribute) and inner.attr == "data":
                value = inner  # np.array(x.data)
            case _:
                return value if value is not node.value else None


def _speaks_of_loss(names: Names, owner: ast.expr) -> bool:
    values = [owner, names.only_value(owner)]
    values += [each.value for each in values if isinstance(each, ast.Subscript)]  # losses[name]
    if isinstance(owner, ast.Name):  # for each in losses.values()
        tables = (_table(b.value) for b in names.lookup(owner) if b.kind in ("loop", "item"))
        values += [each for each in tables if each is not None]
    said = [each.func if isinstance(each, ast.Call) else each for each in values]
    made = [each.func for each in said if isinstance(each, ast.Call)]  # FocalLoss()(x)
    return any(name_heuristics.speaks_of_loss(said_name(each)) for each in (*said, *made))


def _table(several: ast.expr | None) -> ast.expr | None:
    """The `losses` of `losses.values()` or `losses.items()`."""
    match several:
        case ast.Call(func=ast.Attribute(attr="values" | "items", value=table), args=[]):
            return table
    return None


def _is_backward(numbers: Dimensionless, owner: ast.expr) -> bool:
    """Whether gradients of it are asked for, each time after it gets a value that isn't known to
    be a number: then it has one element."""
    names = numbers.names
    if not isinstance(owner, ast.Name):
        return False
    scope = names.scope_of(owner)
    asked = [
        use.lineno for use in names.uses(owner.id, scope) if _is_asked_for_gradients(names, use)
    ]
    bound = [b for b in names.lookup(owner) if b.kind != "other"]
    given = [(names.statement(b.node) or b.node, b) for b in bound]
    places = [place for place, b in given if not _depends_on_itself(b, owner.id)]
    return bool(asked) and all(
        _reaches(names, place, asked, places) or numbers.holds(b.value)
        for place, b in given
        if place in places
    )


def _depends_on_itself(binding: Binding, name: str) -> bool:
    """`loss = loss / 2`: if the result has one element, so had the loss."""
    parts = [binding.value]
    while parts:
        match parts.pop():
            case ast.BinOp(left=left, right=right):
                parts += [left, right]
            case ast.Name(id=part) if part == name:
                return True
    return False


def _reaches(names: Names, value: ast.AST, asked: list[int], given: list[ast.AST]) -> bool:
    """Whether a value is there when gradients are asked for: no other replaces it before."""
    if not isinstance(value, ast.stmt):
        return True
    after = [line for line in asked if line > value.lineno]
    around = {value, *names.ancestors(value)}
    replaced = (
        other.lineno
        for other in given
        if isinstance(other, ast.stmt)
        and other.lineno > value.lineno
        and not around.isdisjoint(names.block(other))
    )
    return bool(after) and min(after) <= min(replaced, default=min(after))


def _is_asked_for_gradients(names: Names, use: ast.Name) -> bool:
    above = names.parents.get(use)
    call = names.call_of(above) if isinstance(above, ast.Attribute) else None
    return (
        call is not None
        and isinstance(above, ast.Attribute)
        and above.attr == "backward"
        and not call.args
        and not any(k.arg in ("gradient", None) for k in call.keywords)
    )
