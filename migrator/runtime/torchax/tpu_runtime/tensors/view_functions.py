"""How views follow from their bases, and how a write to a view changes its base.

Both are functions of arrays, and are recorded like operators (lazy_graph.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.tensor import Environment, Tensor

from ..lazy import lazy_graph
from .reinterpreted_views import OF_PARTS

Array = Any  # a jax.Array, a LazyArray, or a tracer
aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class ViewFunction:
    """One way to look at a base. ``key`` tells it from others for bases of one shape.

    ``others`` are arrays that both functions get besides, such as an index.
    """

    key: Any
    read: Callable[..., Array]  # of the base
    write: Callable[..., Array]  # of the base and the view's new values; the new base
    others: tuple[Array, ...] = ()

    def of(self, base: Array) -> Array:
        """The view's values."""
        return lazy_graph.call(("read", self.key), self.read, base, *self.others)

    def written(self, base: Array, value: Array) -> Array:
        """The base after a write of the view's values."""
        return lazy_graph.call(("write", self.key), self.write, base, value, *self.others)

    def then(self, key: Any, there: Callable[..., Array], back: Callable[..., Array]) -> Any:
        """A view of this view, which has all of its elements."""
        read, write = self.read, self.write
        return ViewFunction(
            (self.key, key), lambda base, *others: there(read(base, *others)),
            lambda base, value, *others: write(base, back(value), *others), self.others,
        )  # fmt: skip


class _Identity(ViewFunction):
    """The whole base."""

    def of(self, base: Array) -> Array:
        return base

    def written(self, base: Array, value: Array) -> Array:
        return value


IDENTITY = _Identity("identity", lambda base: base, lambda base, value: value)


def positions(base: Array) -> Array:
    return jnp.arange(base.size).reshape(base.shape)


def _scatter(read: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    """The write for any view: its elements are looked up in an array of the base's positions."""

    def write(base: Array, value: Array) -> Array:
        places = read(positions(base))
        return base.reshape(-1).at[places.reshape(-1)].set(value.reshape(-1)).reshape(base.shape)

    return write


def _reshape(base: Array, value: Array) -> Array:
    return value.reshape(base.shape)


def _refuse(base: Array, value: Array) -> Array:
    raise RuntimeError("in-place write to a view of another dtype is not supported on this device")


def _at(base: torch.Tensor, dim: int, item: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % base.dim()), item)


def select_view(base: torch.Tensor, dim: int, index: Any) -> ViewFunction:
    """``base.select(dim, index)``; the index may be an array."""
    axis, size = dim % base.dim(), base.shape[dim]
    if not isinstance(index, int):
        return _at_array(axis, size, index)
    index %= size
    if lazy_graph.varies(("select", tuple(base.shape), axis), index):
        return _at_array(axis, size, lazy_graph.number(index))
    place = _at(base, axis, index)
    return ViewFunction(
        ("select", axis, index), lambda x: x[place], lambda x, value: x.at[place].set(value)
    )


def _at_array(axis: int, size: int, index: Array) -> ViewFunction:
    before = [slice(None)] * axis

    def place(index: Array) -> Any:
        return (*before, jnp.where(index < 0, index + size, index))

    return ViewFunction(
        ("select", axis), lambda x, index: x[place(index)],
        lambda x, value, index: x.at[place(index)].set(value), (index,),
    )  # fmt: skip


def _slice(base: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None,
           step: int = 1) -> ViewFunction:  # fmt: skip
    axis, size = dim % base.dim(), base.shape[dim]
    start, end, _ = slice(start, end, step).indices(size)
    length = max(0, -(-(end - start) // step))
    first, count = (start, length) if step == 1 else (0, 0)
    if count and count < size and lazy_graph.varies(("slice", tuple(base.shape), axis), first):
        return ViewFunction(
            ("slice", axis, count),
            lambda x, first: jax.lax.dynamic_slice_in_dim(x, first, count, axis),
            lambda x, value, first: jax.lax.dynamic_update_slice_in_dim(x, value, first, axis),
            (lazy_graph.number(first),),
        )  # fmt: skip
    place = _at(base, axis, slice(start, max(start, end), step))
    return ViewFunction(
        ("slice", axis, start, end, step), lambda x: x[place],
        lambda x, value: x.at[place].set(value),
    )  # fmt: skip


def _permute(base: torch.Tensor, dims: Any) -> ViewFunction:
    order = [dim % len(dims) for dim in dims]
    back = sorted(range(len(order)), key=order.__getitem__)
    return ViewFunction(
        ("permute", *order), lambda x: x.transpose(order), lambda x, value: value.transpose(back)
    )


def _transpose(base: torch.Tensor, *dims: int) -> ViewFunction:
    order = [*range(base.dim())]
    if order:
        one, other = dims or (0, -1)
        order[one], order[other] = order[other], order[one]
    return _permute(base, order)


_KNOWN: dict[Any, Callable[..., ViewFunction]] = {
    aten.select.int: select_view,
    aten.slice.Tensor: _slice,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _transpose,
}
# Their elements come in the order of the base's.
_RESHAPING = {
    aten.view, aten._unsafe_view, aten.reshape, aten._reshape_alias, aten.unsqueeze, aten.squeeze,
    aten.alias, aten.unflatten, aten.to, aten.type_as, aten.contiguous,
}  # fmt: skip


def of_operator(
    env: Environment, function: Any, base: torch.Tensor, args: Any, kwargs: Any,
    shapes: list[torch.Tensor],
) -> list[ViewFunction]:  # fmt: skip
    """The view functions of an ATen operator's results; ``base`` and ``shapes`` have no values."""
    if function in _KNOWN and base.dim():
        return [_KNOWN[function](base, *args, **kwargs)]
    packet = function.overloadpacket
    if packet in _RESHAPING and function is not aten.view.dtype:
        shape = tuple(shapes[0].shape)
        return [ViewFunction(("reshape", shape), lambda x: x.reshape(shape), _reshape)]
    key = function, _hashable(args), _hashable(kwargs)
    return [
        _general(env, function, args, kwargs, n if len(shapes) > 1 else None, (key, n))
        for n in range(len(shapes))
    ]


def _general(
    env: Environment, function: Any, args: Any, kwargs: Any, number: int | None, key: Any
) -> ViewFunction:
    def read(base: Array) -> Array:
        again = env.dispatch(function, (), (Tensor(base, env), *args), dict(kwargs))
        if isinstance(again, (tuple, list)):
            again = again[number or 0]
        return again._elem

    write = OF_PARTS.get(function.overloadpacket, _scatter(read))
    return ViewFunction(key, read, _refuse if function is aten.view.dtype else write)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, (tuple, list)) else value
