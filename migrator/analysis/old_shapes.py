"""Losses whose arguments had other shapes before PyTorch refused that.

`(n, 1)` and `(n,)` of probabilities; one row of scores, and the element of a tensor, which had a
dimension until PyTorch 0.4.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis import old_views
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.values.dimensionless import Dimensionless
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.import_protocols import Imported
from migrator.construct import Construct

_LOSSES = ("torch.nn.BCELoss", "torch.nn.functional.binary_cross_entropy")
_OF_CLASSES = ("torch.nn.CrossEntropyLoss", "torch.nn.NLLLoss",
               "torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")  # fmt: skip
_OF_PROBABILITIES = frozenset(name.rpartition(".")[2] for name in _LOSSES)
_WORDS = frozenset(name.rpartition(".")[2] for name in (*_LOSSES, *_OF_CLASSES))
_FULL = ("torch.ones", "torch.zeros", "torch.rand", "torch.full")
_SIGMOIDS = ("torch.sigmoid", "torch.nn.functional.sigmoid")
_SAME = ("cuda", "cpu", "to", "float", "detach", "clone")


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file has none."""
    return any(word.encode() in source for word in _WORDS) or old_views.may_be_in(source)


def find(names: Names, flow: Flow, project: Imported | None, call: ast.Call) -> Iterator[Construct]:
    """`BCELoss()(D(x), torch.ones(n))`, where D ends with a linear layer."""
    yield from old_views.find(names, call)
    if len(call.args) != 2 or _WORDS.isdisjoint(names.words):
        return
    is_element = _is_element(names, call.args[1])
    if not is_element and _OF_PROBABILITIES.isdisjoint(names.words):
        return  # most calls, seen without following any value
    values, name = Dimensionless(names, flow, project), names.qualified(call.func)
    made = [names.qualified(getattr(v, "func", v)) for v in values.values(call.func) if v]
    found = {name} if name is not None and name in (*_LOSSES, *_OF_CLASSES) else {*made}
    if found and found <= {*_LOSSES}:
        if _is_row(values, call.args[1], frozenset()) and _is_of_rows(values, call.args[0]):
            yield Construct("changed", "shapes", call)
    elif found and found <= {*_OF_CLASSES}:
        if is_element and _is_one_row(values, call.args[0]):
            yield Construct("changed", "one element", call)


def _is_element(names: Names, node: ast.expr) -> bool:
    """`target[c]`, of a loop `for c in range(n)`"""
    match node:
        case ast.Subscript(slice=ast.Name() as index):
            bound = names.lookup(index)
            return len(bound) > 0 and all(
                each.kind == "loop"
                and isinstance(each.value, ast.Call)
                and isinstance(each.value.func, ast.Name)
                and each.value.func.id in ("range", "xrange")
                for each in bound
            )
    return False


def _is_one_row(values: Dimensionless, node: ast.expr) -> bool:
    """What a module gives whose last layer gets one row: `self.out(x.view(1, -1))`"""
    bound = values.names.lookup(node) if isinstance(node, ast.Name) else ()
    for each in bound:
        if not isinstance(each.value, ast.Call) or each.kind not in ("assign", "item"):
            return False
        made = [values.forward_of(v) for v in values.values(each.value.func)]
        if not made or not all(f is not None and _gives_one_row(*f, each.index) for f in made):
            return False
    return len(bound) > 0


def _gives_one_row(values: Dimensionless, forward: ast.FunctionDef, index: int | None) -> bool:
    names = values.names
    last = forward.body[-1]
    given = last.value if isinstance(last, ast.Return) else None
    if index is not None:
        given = given.elts[index] if isinstance(given, ast.Tuple) else None
    if isinstance(given, ast.Name):  # what it was given last
        bound = [b.value for b in names.lookup(given) if b.kind in ("assign", "item") and b.value]
        given = max(bound, key=lambda value: value.lineno) if bound else None
    match given:
        case ast.Call(args=[ast.Call(func=ast.Attribute(attr="view"), args=[rows, _])]):
            layers = [names.qualified(getattr(b.value, "func", b.node))
                      for b in values.bindings(given.func)]  # fmt: skip
            is_linear = layers and all(name == "torch.nn.Linear" for name in layers)
            return bool(is_linear) and isinstance(rows, ast.Constant) and rows.value == 1
    return False


def _is_row(values: Dimensionless, node: ast.expr | None, seen: frozenset[ast.expr]) -> bool:
    """Whether a tensor has one dimension: `torch.ones(n)`, on any device."""
    names = values.names
    if node in seen:
        return True
    match node:
        case ast.Call(func=function, args=[first, *rest]) if (
            name := names.qualified(function)
        ) is not None:
            if name == "torch.autograd.Variable":
                return _is_row(values, first, seen | {node})
            return name in _FULL and not rest and _is_number(values, first)
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if method in _SAME:
            return _is_row(values, owner, seen | {node})
        case ast.Name():
            bound = [each for each in names.lookup(node) if each.kind != "param"]
            return len(bound) == len(names.lookup(node)) > 0 and all(
                (each.kind == "assign" and _is_row(values, each.value, seen | {node}))
                or any(isinstance(s, ast.Name) and s.id == node.id for s in seen)
                for each in bound
            )
    return False


def _is_number(values: Dimensionless, node: ast.expr) -> bool:
    """Whether the size of a tensor is one number: `x.size()[0]`, `x.size(0)`, `n`."""
    match node:
        case ast.Constant(value=int()):
            return True
        case ast.Name():
            bound = values.names.lookup(node)
            sizes = (b.value for b in bound if b.kind == "assign")
            found = [value for value in sizes if value is not None]
            return len(found) == len(bound) > 0 and all(_is_number(values, v) for v in found)
        case ast.Subscript(slice=ast.Constant(value=int()), value=owner):
            is_size = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute)
            return (is_size and owner.func.attr == "size") or (  # type: ignore[attr-defined]
                isinstance(owner, ast.Attribute) and owner.attr == "shape"
            )
        case ast.Call(func=ast.Attribute(attr="size"), args=[_]):
            return True
    return False


def _is_of_rows(values: Dimensionless, node: ast.expr) -> bool:
    """Whether a value is what a module with a linear layer at its end gives."""
    for value in values.values(node):
        if not isinstance(value, ast.Call):
            return False
        made = [values.forward_of(each) for each in values.values(value.func)]
        if not made or not all(each is not None and _ends_linear(*each) for each in made):
            return False
    return True


def _ends_linear(values: Dimensionless, forward: ast.FunctionDef) -> bool:
    match forward.body:
        case [*_, ast.Assign(targets=[ast.Name(id=name)], value=last),
              ast.Return(value=ast.Name(id=given))] if name == given:  # fmt: skip
            pass
        case [*_, ast.Return(value=ast.expr() as last)]:
            pass
        case _:
            return False
    if isinstance(last, ast.Call) and values.names.qualified(last.func) in _SIGMOIDS:
        given_to = argument(last, 0, "input")
        last = given_to if given_to is not None else last
    layers = values.bindings(last.func) if isinstance(last, ast.Call) else ()
    made = [values.names.qualified(getattr(b.value, "func", b.node)) for b in layers]
    return bool(made) and all(name == "torch.nn.Linear" for name in made)
