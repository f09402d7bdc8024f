"""Numbers among an operator's arguments that change at each step: inputs of a program."""

from typing import Any

import torch
import torchax
from torchax.tensor import Tensor

aten = torch.ops.aten


class VaryingFloat(float):
    """A number that is an input of a program: a float for torch, an array for JAX."""

    array: Any


class VaryingInt(int):
    """The same for an int."""

    array: Any


def varying(number: Any, array: Any) -> Any:
    made = VaryingFloat(number) if type(number) is float else VaryingInt(number)
    made.array = array
    return made


def as_arrays(value: Any) -> Any:
    """An argument with arrays in place of the numbers that vary."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(as_arrays, value))
    return value.array if isinstance(value, (VaryingFloat, VaryingInt)) else value


def as_tensors(value: Any) -> Any:
    """The same with tensors, for operators that torch makes of others."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(as_tensors, value))
    varies = isinstance(value, (VaryingFloat, VaryingInt))
    return Tensor(value.array, torchax.default_env()) if varies else value


def out_of_place(function: Any) -> Any:
    """`add` for `add_`: the overload with the same arguments, as their names may differ."""
    packet = function.overloadpacket
    if not packet.__name__.endswith("_"):
        raise LookupError(f"no operator like {function} that doesn't write")
    other, types = getattr(aten, packet.__name__[:-1]), _argument_types(function)
    for name in other.overloads():
        if _argument_types(getattr(other, name)) == types:
            return getattr(other, name)
    raise LookupError(f"no operator like {function} that doesn't write")


def _argument_types(function: Any) -> list[str]:
    return [str(argument.type) for argument in function._schema.arguments]
