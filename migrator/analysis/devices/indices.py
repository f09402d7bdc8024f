"""Device indices: where a program compares "cuda:0", or tests which of several devices it has.

A tensor's device prints as `jax:0` or `xla:0`, where a GPU has `cuda:0`. The target has one device,
so an index only matters in comparisons.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from migrator.analysis import name_heuristics
from migrator.analysis.devices.choices import device_call
from migrator.analysis.ranks.vocabulary import COPIES, COPIES_FOR_A_CALL, WRAPPER
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind

INDEXED = re.compile(r"cuda:(\d+)\Z")
_EQUAL = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def compares_indices(names: Names, flow: Flow) -> bool:
    """Whether a file compares a tensor's device with one that may have an index.

    This includes telling "cuda" from "cuda:0", and parsing the index out of a name.
    """
    told = set()
    for node in names.order:
        sides: list[ast.expr] = []
        match node:
            case ast.Compare(ops=ops) if any(isinstance(op, _EQUAL) for op in ops):
                sides = [node.left, *node.comparators]
            case ast.Call(func=func) if (
                (dotted(func) or "").rpartition(".")[2].startswith("assert")
            ):
                sides = node.args
            case ast.Call(
                func=ast.Attribute(attr=method, value=owner), args=[ast.Constant(value=":"), *_]
            ) if method in ("split", "rsplit", "partition", "rpartition"):
                if flow.is_device(owner):  # int(device.split(":")[1])
                    return True
            case ast.Constant(value=str(text)) if text == "cuda" or INDEXED.match(text):
                others = compared_with(names, node)
                told |= {text} if others else set()
                if text != "cuda" and any(is_read(names, other) for other in others):
                    return True
        reads = [is_read(names, side) for side in sides]
        if any(reads) and any(
            not read and _may_have_index(flow, side)
            for side, read in zip(sides, reads, strict=True)
        ):
            return True
    return {"cuda", "cuda:0"} <= told


def compared_with(names: Names, node: ast.AST) -> list[ast.expr]:
    """The expression that a device is directly compared with: `x.device ==
    torch.device("cuda:0")`."""
    if isinstance(node, ast.expr):
        node = device_call(names, node) or node
    for above in names.ancestors(node):
        match above:
            case ast.Compare(ops=ops) if any(isinstance(op, _EQUAL) for op in ops):
                return [side for side in [above.left, *above.comparators] if side is not node]
            case ast.match_case():
                match names.parents[above]:
                    case ast.Match(subject=subject):
                        return [subject]
            case ast.Tuple() | ast.List() | ast.Set() | ast.pattern():
                node = above
            case _:
                break
    return []


def is_read(names: Names, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is a tensor's device, or its name."""
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[inner]):
            return is_read(names, inner, depth)
        case ast.FormattedValue(value=inner) | ast.JoinedStr(values=[inner]):
            return is_read(names, inner, depth)
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
            return any(is_read(names, element, depth) for element in elts)
        case ast.Attribute(attr="device", value=owner):
            if name_heuristics.is_settings_name((dotted(owner) or "").rpartition(".")[2]):
                return False
            if dotted(owner) not in ("self", "cls"):
                return dotted(node) not in names.dotted_assignments
            within = names.enclosing_class(node)
            if not isinstance(within, ast.ClassDef):
                return False
            values = names.class_attributes[within].get("device", [])
            return any(v is not None and depth < 4 and is_read(names, v, depth + 1) for v in values)
        case ast.Name() if depth < 4:
            values = [b.value for b in names.lookup(node) if b.kind == "assign"]
            return any(v is not None and is_read(names, v, depth + 1) for v in values)
    return False


def _may_have_index(flow: Flow, node: ast.expr) -> bool:
    match node:
        case ast.Constant() | ast.JoinedStr():
            return _says_index(node)
        case ast.Call() if flow.names.qualified(node.func) == "torch.device":
            return names_index(flow.names, node)
        case ast.Name() | ast.Attribute():
            return flow.kind(node) != Kind.CPU
    return _says_index(node)


def names_index(names: Names, node: ast.expr) -> bool:
    """Whether a device is named with an index: `"cuda:0"`, `torch.device("cuda", 0)`."""
    call = device_call(names, node) or node
    if isinstance(call, ast.Call) and names.qualified(call.func) == "torch.device":
        if len(call.args) > 1 or any(k.arg == "index" for k in call.keywords):
            return True
        device = argument(call, 0, "type", "device")
        if isinstance(device, ast.Constant):
            return isinstance(device.value, int) or _says_index(device)
        return call is node or _says_index(node)  # torch.device(rank)
    return _says_index(node)


def _says_index(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and "cuda:" in part.value
        for part in ast.walk(node)
    )


def is_device_index(names: Names, flow: Flow, node: ast.expr) -> bool:
    """True for an integer that identifies a CUDA device: a literal, a rank, `args.gpu`."""
    kind = flow.kind(node)
    if kind & Kind.DEVICE_INT or (isinstance(node, ast.Subscript) and is_of_gpus(names, node)):
        return True
    if isinstance(node, ast.Constant):
        return bool(kind & Kind.INT)
    if kind != Kind.INT or not isinstance(node, ast.Name | ast.Attribute):
        return False
    name = node.id if isinstance(node, ast.Name) else node.attr
    return name_heuristics.is_index_name(name) or flow.is_device(node)


# Functions that take a list of devices, and those that take one by its number.
_LISTS = (*COPIES, COPIES_FOR_A_CALL, WRAPPER)
_NUMBERS = ("torch.cuda.set_device", "torch.cuda.device")


def is_of_gpus(names: Names, node: ast.Subscript) -> bool:
    """`gpu_ids[0]`, if the function also calls `DataParallel(net, gpu_ids)`."""
    text, function = dotted(node.value), names.function(node)
    match node.value:
        case ast.Name(id=name):
            uses: Sequence[ast.expr] = [
                use for use in names.by_id.get(name, ()) if names.function(use) is function
            ]
        case ast.Attribute(attr=attr):
            uses = [use for use in names.by_attribute.get(attr, ()) if dotted(use) == text]
        case _:
            return False
    return any(_names_gpus(names, use) for use in uses)


def _names_gpus(names: Names, use: ast.expr) -> bool:
    above = names.parents.get(use)
    if isinstance(above, ast.Subscript) and above.value is use:  # set_device(gpu_ids[0])
        call = names.parents.get(above)
        return isinstance(call, ast.Call) and names.qualified(call.func) in _NUMBERS
    call = names.parents.get(above) if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call) or (name := names.qualified(call.func)) not in _LISTS:
        return False
    place = 2 if name == COPIES_FOR_A_CALL else 1
    return argument(call, place, "device_ids") is use
