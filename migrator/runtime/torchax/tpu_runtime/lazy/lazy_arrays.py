"""Lazy arrays: the results of operations that are recorded, and computed later by lazy_graph.py.

Arrays never change, and a write gives a tensor a new one. So it doesn't matter when an array is
computed, as long as every read of its values gets them.
"""

from collections.abc import Iterable
from typing import Any

import jax

Array = Any  # a jax.Array, or a LazyArray


class LazyArray:
    """An array that isn't computed yet, or wasn't when this was created."""

    __slots__ = ("__weakref__", "aval", "node", "number", "value")

    def __init__(self, aval: Any, node: Any, number: int) -> None:
        self.aval, self.node, self.number = aval, node, number  # number: which result of node
        self.value: Any = None

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)

    def __float__(self) -> float:
        return float(computed(self))


def settled(array: Array) -> Array:
    """The array itself, if it has been computed."""
    return array.value if type(array) is LazyArray and array.value is not None else array


def computed(array: Array) -> Any:
    """The array itself, computed now if it is lazy.

    Raises the error that ended its computation, with the line that asked for it.
    """
    if type(array) is not LazyArray:
        return array
    if array.value is None:
        array.node.compute()
    if array.value is None:
        raise array.node.error or RuntimeError("this value was never computed")
    return array.value


def stored(tensor: Any) -> Array:
    """The array of a device tensor that isn't a view."""
    array = tensor.__dict__["_elem"]
    if type(array) is LazyArray and array.value is not None:
        array = tensor.__dict__["_elem"] = array.value
    return array


def form(array: Array) -> Any:
    """What a trace uses in place of a lazy array."""
    if type(array) is not LazyArray:
        return array
    return jax.ShapeDtypeStruct(array.shape, array.dtype, weak_type=array.aval.weak_type)


def is_any(arrays: Iterable[Array]) -> bool:
    """Whether one of them isn't computed."""
    return any(type(array) is LazyArray and array.value is None for array in arrays)
