"""Whether a program's own logits processors and stopping criteria may get CPU tensors.

They may if nothing within their reach is on the device or names it: then they only compute with
what they are given. Within reach are their attributes, the variables of their code, and those
of the functions that it names.
"""

from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from ..device import DEVICE_TYPE

_DEPTH = 5
_LONG = 1024  # longer lists hold data
_LIBRARIES = ("torch", "numpy", "transformers", "tokenizers", "builtins", "typing", "collections")
_TARGETS = frozenset({__name__.partition(".")[0], "torch_xla", "torchax", "jax"})
_NO_CODE = (BuiltinFunctionType, str, bytes, int, float, complex, bool, type(None), torch.dtype)


def stay_on_cpu(given: Any) -> bool:
    """Whether nothing that ``given``, a list or a function, can reach is on the device."""
    return all(not _is_there(value) for value in _reach(given, _DEPTH, {}))


def _is_there(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        tensors = [value] if isinstance(value, torch.Tensor) else [*value.parameters()]
        return any(tensor.device.type == DEVICE_TYPE for tensor in tensors)
    if isinstance(value, torch.device):
        return value.type == DEVICE_TYPE
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _TARGETS
    if isinstance(value, CodeType):
        named = any(_names_device(constant) for constant in value.co_consts)
        return named or not _TARGETS.isdisjoint(value.co_names)
    return _names_device(value)


def _names_device(value: Any) -> bool:
    return isinstance(value, str) and value.partition(":")[0] == DEVICE_TYPE


def _reach(value: Any, depth: int, seen: dict[int, Any]) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen[id(value)] = value
    yield value
    for inner in _inside(value) if depth else ():
        yield from _reach(inner, depth - 1, seen)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, (_NO_CODE, torch.Tensor, torch.nn.Module)):
        return
    if isinstance(value, (list, tuple, set, frozenset)):
        yield from list(value)[:_LONG]
    elif isinstance(value, dict):
        yield from list(value.values())[:_LONG]
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        yield from _around(value)
    elif isinstance(value, type):
        for base in value.__mro__:
            if not _is_library(base.__module__):
                yield from vars(base).values()
    elif isinstance(value, (property, staticmethod, classmethod)):
        yield from (getattr(value, "fget", None), getattr(value, "__func__", None))
    elif not isinstance(value, (ModuleType, CodeType)):
        yield from (type(value), getattr(value, "__dict__", None))


def _around(function: FunctionType) -> Iterator[Any]:
    """The names used in a function's code, and its closure."""
    if _is_library(function.__module__):
        return
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    for code in _codes(function.__code__):
        yield code
        for name in code.co_names:
            found = function.__globals__.get(name)
            yield found
            if isinstance(found, ModuleType) and not _is_library(found.__name__):
                yield from (getattr(found, other, None) for other in code.co_names)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES
