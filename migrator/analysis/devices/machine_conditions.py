"""Conditions that a TPU machine decides: versions, its system, accelerators that it lacks.

Code behind one that turns out otherwise never runs there: `if torch.__version__ < "1.0":`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

from migrator.analysis.devices.other_accelerators import OTHERS, of_name
from migrator.analysis.syntax.conditions import asked_before
from migrator.analysis.syntax.names import Names


class _Machine(NamedTuple):
    torch: str
    python: tuple[int, ...]


# The oldest and the newest versions that targets run with, and one that is less as a text.
_MACHINES = (
    _Machine("2.9.0", (3, 10, 0)),
    _Machine("2.10.0", (3, 12, 4)),
    _Machine("2.15.1+cpu", (3, 14, 1)),
)
_FIXED: Mapping[str, Any] = {
    "sys.platform": "linux", "os.name": "posix", "torch.version.hip": None, "six.PY2": False,
    "six.PY3": True, "typing.TYPE_CHECKING": False,
}  # fmt: skip
_SYSTEM = {"platform.system": "Linux"}
# What programs ask older versions of PyTorch for.
_PRESENT = frozenset({
    "torch.compile", "torch.fft", "torch.linalg", "torch.inference_mode", "torch.vmap",
    "torch.func",
    "torch.set_float32_matmul_precision", "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.mish", "torch.nn.functional.silu", "torch.nn.RMSNorm", "torch.nn.SiLU",
    "torch.distributed.all_gather_into_tensor", "torch.distributed.reduce_scatter_tensor",
    "torch.distributed.is_initialized", "torch.cuda.amp", "torch.cuda.amp.autocast", "torch.amp",
    "torch.amp.GradScaler", "torch.utils.data.IterableDataset", "torch.backends.mps", "torch.xpu",
    "torch.mps",
})  # fmt: skip
_PARSE = frozenset({
    "packaging.version.parse", "packaging.version.Version", "packaging.version.LegacyVersion",
    "pkg_resources.parse_version", "distutils.version.LooseVersion", "looseversion.LooseVersion",
    "distutils.version.StrictVersion", "torch.torch_version.TorchVersion",
})  # fmt: skip
_OF_VERSION = frozenset({"major", "minor", "micro", "release", "base_version", "public"})
_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "tuple": tuple, "list": tuple, "len": len,
}  # fmt: skip
_METHODS = frozenset({"split", "rsplit", "partition", "startswith", "endswith", "strip", "lower"})
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda one, other: one in other, ast.NotIn: lambda one, other: one not in other,
}  # fmt: skip
_DEPTH = 8
# A cheap test: a file without these has no such conditions.
MAY_ASK = re.compile(
    rb"__version__|version_info|platform|\bos\b|is_available|is_built|\bhip\b|PY[23]\b"
    rb"|hasattr|\bdir\(|TYPE_CHECKING|\b(?:if|while)\s+(?:False|0)\b"
)


class _UnknownAnswer(Exception):
    """The machine doesn't decide it."""


_FAILURES = (_UnknownAnswer, InvalidVersion, TypeError, ValueError, LookupError, AttributeError)


class _TorchVersion(str):
    """torch's own version: compared with a text, it is a version, not a text."""


def tpu_answer(
    names: Names, test: ast.expr, packages: Mapping[str, str] | None = None
) -> bool | None:
    """How a condition turns out on every TPU machine; None if they don't decide it.

    ``packages``: versions of modules beside PyTorch, where it is enough how it turns out with them.
    """
    found = {_Values(names, machine, packages or {}).truth(test) for machine in _MACHINES}
    return found.pop() if len(found) == 1 else None


def never_runs(names: Names, node: ast.AST) -> ast.expr | None:
    """The condition that keeps a node from running on any TPU machine; None if there is none."""
    for test, outcome in asked_before(names.parents, node, names.tree):
        known = tpu_answer(names, test)
        if known is not None and known is not outcome:
            return test
    return None


class _Values:
    """What expressions are on one machine."""

    def __init__(self, names: Names, machine: _Machine, packages: Mapping[str, str]) -> None:
        self.names, self.machine, self.packages = names, machine, packages

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > _DEPTH:
            raise _UnknownAnswer
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute() if (name := self.names.qualified(node)) is not None:
                return self._named(name, node, depth)
            case ast.Name():
                return self._of_name(node, depth)
            case ast.Attribute(attr=attr, value=owner) if attr in _OF_VERSION:
                return getattr(_version(self.value(owner, depth + 1)), attr)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return tuple(self.value(each, depth + 1) for each in elements)
            case ast.Subscript(value=owner, slice=index):
                return self.value(owner, depth + 1)[self._index(index, depth)]
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._joined(node, depth)
            case ast.Call() | ast.Compare() if (has := self._has_name(node)) is not None:
                return has
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self.value(side, depth + 1) for side in (left, *others)]
                compared = zip(ops, sides, sides[1:], strict=False)
                return all(_compare(op, one, other) for op, one, other in compared)
            case ast.Call():
                return self._called(node, depth)
            case ast.ListComp() | ast.GeneratorExp():
                return self._numbers(node, depth)
        raise _UnknownAnswer

    def _named(self, name: str, node: ast.expr, depth: int) -> Any:
        if name in ("torch.__version__", "torch.version.__version__"):
            return _TorchVersion(self.machine.torch)
        if name == "sys.version_info":
            return self.machine.python
        if name.startswith("sys.version_info."):
            return self.machine.python[("major", "minor", "micro").index(name.rpartition(".")[2])]
        if name in _FIXED:
            return _FIXED[name]
        if name.endswith(".__version__") and (known := self.packages.get(name.split(".")[0])):
            return known
        if isinstance(node, ast.Attribute) and node.attr in _OF_VERSION:
            return getattr(_version(self.value(node.value, depth + 1)), node.attr)
        raise _UnknownAnswer

    def _of_name(self, node: ast.Name, depth: int) -> Any:
        """What all values that a name is given are; a mere constant may be a setting."""
        bindings = self.names.lookup(node)
        if not bindings or any(b.kind != "assign" or b.value is None for b in bindings):
            raise _UnknownAnswer
        if all(isinstance(b.value, ast.Constant) for b in bindings):
            raise _UnknownAnswer
        values = [self.value(b.value, depth + 1) for b in bindings if b.value is not None]
        if any(type(value) is not type(values[0]) or value != values[0] for value in values):
            raise _UnknownAnswer
        return values[0]

    def _has_name(self, node: ast.expr) -> bool | None:
        """`hasattr(torch, "compile")`, `"compile" in dir(torch)`; None if that isn't known."""
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str(name))]):
                asked = True
            case ast.Compare(
                left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn() as op],
                comparators=[ast.Call(func=ast.Name(id="dir"), args=[owner])],
            ):  # fmt: skip
                asked = isinstance(op, ast.In)
            case _:
                return None
        return asked if f"{self.names.qualified(owner)}.{name}" in _PRESENT else None

    def _index(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if p is None else self.value(p, depth + 1) for p in parts))
        return self.value(node, depth + 1)

    def _joined(self, node: ast.BoolOp | ast.UnaryOp, depth: int) -> bool:
        """`not a`, `a and b`: one that is false decides, also where others aren't known."""
        if isinstance(node, ast.UnaryOp):
            return not self.value(node.operand, depth + 1)
        ends = isinstance(node.op, ast.Or)
        known = [self.truth(value, depth + 1) for value in node.values]
        if ends in known:
            return ends
        if None in known:
            raise _UnknownAnswer
        return not ends

    def truth(self, node: ast.expr, depth: int = 0) -> bool | None:
        try:
            return bool(self.value(node, depth))
        except _FAILURES:
            return None

    def _called(self, call: ast.Call, depth: int) -> Any:
        name = self.names.qualified(call.func) or ""
        if name in _SYSTEM:
            return _SYSTEM[name]
        if of_name(name) in OTHERS and name.endswith(("is_available", "is_built")):
            return False
        if call.keywords:
            raise _UnknownAnswer
        if name in _PARSE and len(call.args) == 1:
            return _version(self.value(call.args[0], depth + 1))
        if name in _CONVERTED and len(call.args) == 1:
            return _CONVERTED[name](self.value(call.args[0], depth + 1))
        match call:
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="int"), numbers]):
                return tuple(map(int, self.value(numbers, depth + 1)))
            case ast.Call(func=ast.Attribute(attr=attr, value=owner)) if attr in _METHODS:
                text = self.value(owner, depth + 1)
                if isinstance(text, str):
                    given = (self.value(each, depth + 1) for each in call.args)
                    return getattr(str(text), attr)(*given)
        raise _UnknownAnswer

    def _numbers(self, node: ast.ListComp | ast.GeneratorExp, depth: int) -> Any:
        """`[int(x) for x in torch.__version__.split(".")[:2]]`"""
        match node:
            case (
                ast.ListComp(
                    elt=ast.Call(func=ast.Name(id="int"), args=[ast.Name(id=each)], keywords=[]),
                    generators=[ast.comprehension(target=ast.Name(id=name), iter=parts, ifs=[])],
                )
                | ast.GeneratorExp(
                    elt=ast.Call(func=ast.Name(id="int"), args=[ast.Name(id=each)], keywords=[]),
                    generators=[ast.comprehension(target=ast.Name(id=name), iter=parts, ifs=[])],
                )
            ) if each == name:
                return tuple(map(int, self.value(parts, depth + 1)))
        raise _UnknownAnswer


def _version(value: Any) -> Version:
    return value if isinstance(value, Version) else Version(str(value))


def _compare(op: ast.cmpop, one: Any, other: Any) -> bool:
    versions = (Version, _TorchVersion)
    orders = not isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn)
    if orders and (isinstance(one, versions) or isinstance(other, versions)):
        one, other = _version(one), _version(other)
    return bool(_COMPARED[type(op)](one, other))
