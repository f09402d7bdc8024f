"""The models and optimizers that a function names, from which it is known which take part."""

from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.optim import Optimizer

from ..tensors.structures import is_plain
from .bytecode_names import names_of
from .closure_variables import ClosureVariables
from .program_code import is_library

_DEPTH = 4  # of nested functions and objects
_LONG = 1024  # a longer list contains data


def members_of(function: Any) -> list[Any]:
    """Modules and optimizers around the function, and around functions that it names."""
    found: dict[int, Any] = {}
    seen: dict[int, Any] = {}

    def look(value: Any, depth: int) -> None:
        if id(value) in seen:
            return
        seen[id(value)] = value
        if isinstance(value, (torch.nn.Module, Optimizer)):
            found[id(value)] = value
        elif depth:
            for inner in _inside(value):
                look(inner, depth - 1)

    look(function, _DEPTH)
    return list(found.values())


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, FunctionType) and not is_library(value.__code__.co_filename):
        yield from ClosureVariables(value).values()
        variables = value.__globals__
        yield from (variables[n] for n in names_of(value.__code__).variables if n in variables)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, (dict, list, tuple)):
        if len(value) <= _LONG:
            yield from value.values() if isinstance(value, dict) else value
    elif is_plain(value):
        yield from vars(value).values()
