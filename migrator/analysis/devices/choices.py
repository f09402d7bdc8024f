"""Where a program chooses, names or looks up a device."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind

AVAILABLE = ("torch.cuda.is_available", "torch.accelerator.is_available")
_DEPTH = 3  # of variables that name one another
_OTHER_DEVICES = {"cpu", "mps", "xpu", "npu", "hpu", "meta", "xla"}


@dataclass(frozen=True)
class Choice:
    """`X if torch.cuda.is_available() else Y`: the whole expression and the branch for the
    accelerator."""

    node: ast.IfExp
    device: ast.expr


def availability_choice(names: Names, flow: Flow, call: ast.expr) -> Choice | None:
    """The conditional expression that chooses a device and whose only test is `call`."""
    test: ast.AST = call
    parent = names.parents.get(call)
    negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    if negated and parent is not None:
        test, parent = parent, names.parents.get(parent)
    if not isinstance(parent, ast.IfExp) or parent.test is not test:
        return None
    gpu, other = (parent.orelse, parent.body) if negated else (parent.body, parent.orelse)
    cpu = flow.kind(other) & Kind.CPU or names_device(other)
    return Choice(parent, gpu) if cpu and is_gpu(names, flow, gpu) else None


def is_gpu(names: Names, flow: Flow, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is a GPU: not an option or an argument, which may also name the CPU."""
    kind = flow.kind(node)
    if kind & (Kind.DEVICE_INT | Kind.INT):
        return True  # in place of the CPU
    if not kind & (Kind.DEVICE | Kind.DEVICE_STRING) or kind & Kind.CPU:
        return False
    match node:
        case ast.Name() if depth < _DEPTH:
            bound = names.lookup(node)
            values = [each.value for each in bound if each.kind == "assign"]
            return 0 < len(values) == len(bound) and all(
                each is not None and is_gpu(names, flow, each, depth + 1) for each in values
            )
        case ast.Call(func=func, args=[first, *_]) if names.qualified(func) == "torch.device":
            return is_gpu(names, flow, first, depth)
        case ast.Name() | ast.Attribute() | ast.Subscript() | ast.BoolOp():
            return False
    return True


def with_older_torch(names: Names, node: ast.expr) -> ast.expr:
    """All of `node if hasattr(torch, "accelerator") else …`, which torch 2.6 made unnecessary.

    Otherwise the node itself.
    """
    match names.parents.get(node):
        case (
            ast.IfExp(
                test=ast.Call(
                    func=ast.Name(id="hasattr"), args=[owner, ast.Constant("accelerator")]
                ),
                body=body,
            ) as choice
        ) if body is node and names.qualified(owner) == "torch":
            return choice
    return node


def names_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in _OTHER_DEVICES


_texts: WeakKeyDictionary[ast.AST, frozenset[str]] = WeakKeyDictionary()


def texts_of(collection: ast.Tuple | ast.List | ast.Set) -> frozenset[str]:
    """The strings in a list, found once: each of its elements is asked about."""
    if collection not in _texts:
        constants = (each.value for each in collection.elts if isinstance(each, ast.Constant))
        _texts[collection] = frozenset(each for each in constants if isinstance(each, str))
    return _texts[collection]


def device_call(names: Names, node: ast.expr) -> ast.Call | None:
    """The `torch.device(…)` call in which `node` is the name of the device."""
    parent = names.parents.get(node)
    if isinstance(parent, ast.keyword):
        parent = names.parents.get(parent)
    if isinstance(parent, ast.Call) and names.qualified(parent.func) == "torch.device":
        if argument(parent, 0, "type", "device") is node:
            return parent
    return None


def method_caller(names: Names, node: ast.expr) -> ast.Call | None:
    """The call `methodcaller("cuda")` that a string is the argument of."""
    call = names.parents.get(node)
    if isinstance(call, ast.Call) and call.args[:1] == [node]:
        return call if names.qualified(call.func) == "operator.methodcaller" else None
    return None


def whole_string(names: Names, node: ast.expr) -> ast.expr:
    """The whole of `"cuda:" + str(i)`, `"cuda:%d" % i`, `"cuda:{}".format(i)` that a string is part
    of."""
    parent = names.parents.get(node)
    if isinstance(parent, ast.BinOp) and parent.left is node:
        return parent
    if isinstance(parent, ast.Attribute) and parent.attr == "format":
        call = names.call_of(parent)
        if call is not None:
            return call
    return node


def places_of_load(names: Names, node: ast.AST) -> tuple[ast.expr, ast.Call] | None:
    """The `map_location` that a device string is part of, and its `torch.load`.

    In `{"cuda:0": "cuda:1"}`, keys and values are all devices. A device may also have a variable
    that is used for nothing else: `loc = f"cuda:{gpu}"`.
    """
    around = (node, *names.ancestors(node))
    table = next((a for a in around if isinstance(a, ast.Dict)), None)
    if table is not None and not all(
        key is not None and _is_place(key) and _is_place(value)
        for key, value in zip(table.keys, table.values, strict=True)
    ):
        return None
    value = next((a for a in around if isinstance(names.parents.get(a), ast.Assign)), None)
    named = value if isinstance(value, ast.expr) and _is_place(value) else None
    if (places := table or named) is None:
        return None
    location: ast.AST = places
    match names.parents.get(places):
        case ast.Assign(targets=[ast.Name() as target]):
            uses = list(names.uses(target.id, names.scope_of(target)))
            if len(uses) != 1 or len(names.lookup(target)) != 1:
                return None
            location = uses[0]
    keyword = names.parents.get(location)
    call = names.parents.get(keyword) if isinstance(keyword, ast.keyword) else keyword
    if isinstance(call, ast.Call) and names.qualified(call.func) == "torch.load":
        return places, call
    return None


def are_places_by_name(names: Names, location: ast.expr) -> bool:
    """Whether a variable holds devices for `map_location`, and is used for nothing else."""
    found = names.lookup(location) if isinstance(location, ast.Name) else ()
    value = found[0].value if len(found) == 1 and found[0].kind == "assign" else None
    return value is not None and places_of_load(names, value) is not None


def _is_place(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text.startswith(("cuda", "cpu"))
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text.startswith("cuda")
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return text.startswith("cuda")
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return text.startswith("cuda")
    return False


# Positional arguments that are devices.
