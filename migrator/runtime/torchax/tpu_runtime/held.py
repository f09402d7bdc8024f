"""Arrays that are held back, in the loops of frameworks: together.py computes them.

Arrays never change, and a write gives a tensor another one. So it makes no difference when one is
computed, as long as whoever asks for its values gets them.
"""

from collections.abc import Iterable
from typing import Any

import jax

Array = Any  # a jax.Array, or Held

is_on = False  # whether anything is held back: holding.py begins with it


class Held:
    """An array that is not computed yet, or was not when it was made."""

    __slots__ = ("__weakref__", "aval", "node", "number", "value")

    def __init__(self, aval: Any, node: Any, number: int) -> None:
        self.aval, self.node, self.number = aval, node, number  # of what gives it, which result
        self.value: Any = None

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)

    def __float__(self) -> float:
        return float(computed(self))


def settled(array: Array) -> Array:
    """The array itself, if it has been computed."""
    return array.value if type(array) is Held and array.value is not None else array


def computed(array: Array) -> Any:
    """The array itself, which is computed now if it is held."""
    if type(array) is not Held:
        return array
    if array.value is None:
        array.node.compute()
    if array.value is None:
        raise RuntimeError("this value was never computed: an error ended its computation")
    return array.value


def stored(tensor: Any) -> Array:
    """The array of a device tensor that is no view."""
    array = tensor.__dict__["_elem"]
    if type(array) is Held and array.value is not None:
        array = tensor.__dict__["_elem"] = array.value
    return array


def form(array: Array) -> Any:
    """What a trace takes in the place of an array that is held."""
    if type(array) is not Held:
        return array
    return jax.ShapeDtypeStruct(array.shape, array.dtype, weak_type=array.aval.weak_type)


def is_any(arrays: Iterable[Array]) -> bool:
    """Whether one of them is held."""
    return is_on and any(type(array) is Held and array.value is None for array in arrays)
