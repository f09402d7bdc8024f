"""Tensors of integers, of bytes and of booleans, as far as a file shows them."""

from __future__ import annotations

import ast
from enum import Enum, auto

from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import argument


class Dtype(Enum):
    """What a value is."""

    NUMBER = auto()  # an integer of Python
    INTEGERS = auto()  # a tensor of them
    INDICES = auto()  # and none is negative
    BYTES = auto()
    BOOLEANS = auto()


_INTEGERS = frozenset({"int", "long", "short"})
_INDICES = frozenset({"argmax", "argmin", "argsort", "multinomial", "nonzero", "randperm"})
_COMPARING = frozenset({"eq", "ge", "gt", "isnan", "le", "lt", "ne"})
_SAME = frozenset({
    "clone", "contiguous", "cpu", "cuda", "detach", "expand", "expand_as", "flatten", "permute",
    "repeat", "reshape", "squeeze", "t", "to", "transpose", "unsqueeze", "view", "view_as",
})  # fmt: skip
_WITH_INDICES = frozenset({"kthvalue", "max", "median", "min", "mode", "sort", "topk"})
_TYPES = {
    "torch.LongTensor": Dtype.INTEGERS, "torch.IntTensor": Dtype.INTEGERS,
    "torch.cuda.LongTensor": Dtype.INTEGERS, "torch.cuda.IntTensor": Dtype.INTEGERS,
    "torch.ByteTensor": Dtype.BYTES, "torch.cuda.ByteTensor": Dtype.BYTES,
}  # fmt: skip
_DTYPES = {
    "torch.long": Dtype.INTEGERS, "torch.int64": Dtype.INTEGERS, "torch.int": Dtype.INTEGERS,
    "torch.int32": Dtype.INTEGERS, "torch.uint8": Dtype.BYTES, "torch.bool": Dtype.BOOLEANS,
}  # fmt: skip
_WHOLE = (Dtype.INTEGERS, Dtype.INDICES)
_DEEPEST = 12


def dtype(names: Names, node: ast.expr | None, depth: int = 0) -> Dtype | None:
    """What a value is, if it is the same wherever it comes from."""
    if node is None or depth > _DEEPEST:
        return None
    deeper = depth + 1
    match node:
        case ast.Constant(value=value):
            return Dtype.NUMBER if type(value) is int else None
        case ast.Compare(left=left, comparators=[right], ops=[op]):
            compares = isinstance(op, ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE)
            tensor = any(_is_tensor(names, side, deeper) for side in (left, right))
            return Dtype.BOOLEANS if compares and tensor else None
        case ast.Call():
            return _of_call(names, node, deeper)
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=1)) if _gives_indices(
            names, call
        ):
            return Dtype.INDICES
        case ast.Subscript(value=owner):
            found = dtype(names, owner, deeper)
            return found if found is not Dtype.NUMBER else None
        case ast.Attribute(attr="data", value=owner):
            return dtype(names, owner, deeper)
        case ast.Name():
            bound = names.lookup(node)
            found_all = {_of_binding(names, each, deeper) for each in bound}
            return found_all.pop() if len(found_all) == 1 else None
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Mod(), left=left, right=right):
            both = {dtype(names, left, deeper), dtype(names, right, deeper)}
            if both & {*_WHOLE} and both <= {*_WHOLE, Dtype.NUMBER}:
                return Dtype.INTEGERS
            return Dtype.NUMBER if both == {Dtype.NUMBER} else None
    return None


def _of_binding(names: Names, binding: Binding, depth: int) -> Dtype | None:
    if binding.kind == "item" and isinstance(binding.value, ast.Call):
        gives = binding.index == 1 and _gives_indices(names, binding.value)
        return Dtype.INDICES if gives else None
    return dtype(names, binding.value, depth) if binding.kind == "assign" else None


def _of_call(names: Names, call: ast.Call, depth: int) -> Dtype | None:
    name = names.qualified(call.func) or ""
    last = name.rpartition(".")[2] if name.startswith("torch.") else ""
    given = argument(call, None, "dtype")
    if name in _TYPES:
        return _TYPES[name]
    if given is not None and (last or not name):
        return _DTYPES.get(names.qualified(given) or "")
    if name in ("len", "int"):
        return Dtype.NUMBER
    if name == f"torch.{last}":
        if last in _INDICES:
            return Dtype.INDICES
        if last == "arange" and all(dtype(names, a) is Dtype.NUMBER for a in call.args):
            return Dtype.INDICES if len(call.args) == 1 else Dtype.INTEGERS
        return Dtype.BOOLEANS if last in _COMPARING else None
    if name or not isinstance(call.func, ast.Attribute):
        return None
    method, owner = call.func.attr, call.func.value
    if method in _SAME and not (method == "to" and _casts(names, call)):
        return dtype(names, owner, depth)
    if method in ("size", "numel", "dim"):
        return Dtype.NUMBER if call.args or method != "size" else None
    if method in _INTEGERS and not call.args:
        return Dtype.INTEGERS
    if method in _INDICES:
        return Dtype.INDICES
    if method in _COMPARING and len(call.args) == 1:
        return Dtype.BOOLEANS
    return {"byte": Dtype.BYTES, "bool": Dtype.BOOLEANS}.get(method) if not call.args else None


def _casts(names: Names, call: ast.Call) -> bool:
    return any((names.qualified(each) or "") in _DTYPES for each in call.args)


def _gives_indices(names: Names, call: ast.Call) -> bool:
    """Whether a call gives values and their places: `x.topk(5)`, `torch.max(x, 1)`."""
    name = names.qualified(call.func)
    if name is not None:
        last, given = name.removeprefix("torch."), len(call.args) - 1
    elif isinstance(call.func, ast.Attribute):
        last, given = call.func.attr, len(call.args)
    else:
        return False
    told = given > 0 or any(k.arg == "dim" for k in call.keywords)
    return last in _WITH_INDICES and (told or last == "sort")


def _is_tensor(names: Names, node: ast.expr, depth: int) -> bool:
    """Whether a side of a comparison is a tensor of any type."""
    if depth > _DEEPEST:
        return False
    match node:
        case ast.Name():
            values = [b.value for b in names.lookup(node) if b.kind == "assign"]
            return len(values) == len(names.lookup(node)) > 0 and all(
                value is not None and _is_tensor(names, value, depth + 1) for value in values
            )
        case ast.Call(func=function):
            name = names.qualified(function) or ""
            made = name.startswith("torch.") and name.count(".") == 1 and name[6:] in _MAKING
            if made or name.startswith("torch.nn.functional."):
                return True
            if not name and isinstance(function, ast.Attribute) and function.attr in _SAME_KIND:
                return _is_tensor(names, function.value, depth + 1)
    return dtype(names, node, depth) in (*_WHOLE, Dtype.BYTES, Dtype.BOOLEANS)


_SAME_KIND = _SAME | {"double", "float", "half", "abs", "exp", "log", "sigmoid", "sqrt", "tanh"}
_MAKING = frozenset({
    "abs", "arange", "bernoulli", "cat", "empty", "exp", "eye", "full", "linspace", "log", "matmul",
    "ones", "ones_like", "rand", "rand_like", "randint", "randn", "randn_like", "sigmoid",
    "softmax", "sqrt", "stack", "tanh", "tensor", "zeros", "zeros_like",
})  # fmt: skip
