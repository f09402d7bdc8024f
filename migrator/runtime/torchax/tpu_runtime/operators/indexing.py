"""Indexing: `x[key]` and `x[key] = value` with torch's meaning.

torchax 0.0.13 loses the gradient in both, accepts no CPU tensor and no list as an index, and
returns an object of its own that is no tensor for slices.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops import jaten
from torchax.tensor import Environment, Tensor

from ..device import DEVICE_TYPE
from ..dispatch.calls import (
    Function,
    holds_device_tensor,
    is_device_tensor,
    move,
    native,
    needs_gradient,
    patch,
    register,
    replaces,
)
from ..dispatch.jax_kernels import Array
from ..lazy import lazy_graph
from ..tensors.views import array_of, count_write, layout_of, link_part, peek


def _key(env: Environment, key: Any) -> Any:
    """An index for JAX: device arrays instead of tensors and lists."""
    if isinstance(key, tuple):
        return tuple(_key(env, item) for item in key)
    if isinstance(key, list):
        return _key(env, native(torch.tensor, (key,), {"device": "cpu"}))
    if isinstance(key, torch.Tensor):
        array = array_of(env, key)
        return array.astype(bool) if array.dtype == jnp.uint8 else array  # torch: uint8 is a mask
    return key


def _is_basic(key: Any) -> bool:
    """Whether it chooses a view."""
    items = key if isinstance(key, tuple) else (key,)
    return all(
        item is None or item is Ellipsis or isinstance(item, slice) or type(item) is int
        for item in items
    )


def _tensors(env: Environment, key: Any) -> Any:
    """An index with all its tensors on the device, for torch's own indexing."""
    if isinstance(key, tuple):
        return tuple(_tensors(env, item) for item in key)
    if isinstance(key, list) or (isinstance(key, torch.Tensor) and not is_device_tensor(key)):
        return Tensor(_key(env, key), env)
    if isinstance(key, torch.Tensor) and key.dtype == torch.uint8:
        return key.bool()  # torch: uint8 is a mask
    return key


def _plain_index(key: Any) -> Any:
    """Slices by 0-dim tensors (`x[: n]`) with numbers instead, other sequences as lists."""
    if isinstance(key, tuple):
        return tuple(_plain_index(item) for item in key)
    if isinstance(key, range):
        return list(key)
    if isinstance(key, slice):
        return slice(*(None if v is None else int(v) for v in (key.start, key.stop, key.step)))
    return key


def of_base(
    tensor: Any, size: Any, strides: Any, offset: int | None = None
) -> tuple[Any, Any, Any, int]:
    """The arguments of `as_strided`, which counts positions in memory: in the base's array."""
    start = int(torch.Tensor.storage_offset(tensor) if offset is None else offset)
    dtype = tensor.dtype
    while (link := tensor.__dict__.get("_link")) is not None and link.parent.dtype == dtype:
        tensor = link.parent
    return tensor, size, strides, start


@replaces(torch.as_strided_copy)
def _as_strided_copy(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """Of a view: torchax counts positions in its elements."""
    if not holds_device_tensor((args, kwargs)) or "out" in kwargs:
        return NotImplemented
    return torch.as_strided(*args, **kwargs).clone()


@replaces(torch.as_strided_scatter, torch.Tensor.as_strided_scatter)
def _as_strided_scatter(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """Writes to the elements that are at these positions of the base's memory.

    torchax 0.0.13 counts positions in a view's elements, and writes to those that aren't there.
    """
    if not is_device_tensor(args[0] if args else kwargs.get("input")):
        return NotImplemented
    with env._dispatch_mode:
        return _scattered(function, *args, **kwargs)


def _scattered(
    stock: Function, input: Any, src: Any, size: Any, stride: Any, storage_offset: Any = None
) -> torch.Tensor:
    """Torch does it to the elements' numbers, on the CPU: what it refuses is refused here, too."""
    layout = layout_of(input)
    base = of_base(input, size, stride)[0]
    memory = native(torch.full, ((base.numel(),), -1), {"device": "cpu"})
    where = layout.shape, layout.stride(), layout.storage_offset()
    here = native(torch.as_strided, (memory, *where), {})
    numbers = native(torch.arange, (src.numel(),), {"device": "cpu"})
    written = native(torch.Tensor.view, (numbers, src.shape), {})
    sources = native(torch.as_strided_scatter, (here, written, size, stride, storage_offset), {})
    if not src.numel():
        return input.clone()  # type: ignore[no-any-return]
    if needs_gradient((input, src)):  # torch's own, which is not that of what is computed here
        if base is not input:
            raise RuntimeError("as_strided_scatter of a view has no gradient: clone() it first")
        return stock(input, src, size, stride, storage_offset or 0)  # type: ignore[no-any-return]
    places = move(input._env, sources)
    values = src.to(input.dtype).reshape(-1)[places.clamp(min=0)]
    return torch.where(places < 0, input, values)


def _new_empty_strided(tensor: Tensor, size: Any, strides: Any, **options: Any) -> Tensor:
    """A tensor with the requested strides; autograd relies on them for gradients of parts.

    torchax 0.0.13 ignores the strides.
    """
    env = tensor._env
    dtype = options.get("dtype") or tensor.dtype
    places = 1 + sum((n - 1) * step for n, step in zip(size, strides, strict=True))
    with env._dispatch_mode:
        memory = torch.zeros(places if 0 not in size else 0, dtype=dtype, device=DEVICE_TYPE)
        return torch.as_strided(memory, size, strides)  # type: ignore[return-value]


@replaces(torch.Tensor.__getitem__)
def _getitem(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    tensor, key = args
    key = _plain_index(key)
    if not isinstance(tensor, Tensor):
        if is_device_tensor(tensor):
            return NotImplemented
        return native(function, (tensor, _on_cpu(key)), {})
    with env._dispatch_mode:
        if _is_number(key) and not needs_gradient(tensor):
            return link_part(tensor, key)
        return function(tensor, _tensors(env, key))  # torchax's own loses the gradient


def _is_number(key: Any) -> bool:
    """Whether it is a device tensor without dimensions, whose value torch would read."""
    if not is_device_tensor(key) or key.dim():
        return False
    return key.dtype not in (torch.bool, torch.uint8) and not key.is_floating_point()


def _on_cpu(key: Any) -> Any:
    if isinstance(key, (tuple, list)):
        return type(key)(_on_cpu(item) for item in key)
    return key.torch() if is_device_tensor(key) else key


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    """`self[key] = value`; ``value`` may be a number, a tensor on either device, or an array."""
    env = self._env
    key = _plain_index(key)
    if isinstance(value, torch.Tensor):
        if not is_device_tensor(value):
            value = Tensor(env.t2j_copy(value), env)
    elif not isinstance(value, (int, float, bool, complex)):
        value = Tensor(env.t2j_copy(native(torch.as_tensor, (value,), {})), env)
    if _is_basic(key) or needs_gradient((self, value)):
        with env._dispatch_mode:
            torch.Tensor.__setitem__(self, _tensors(env, key), value)
        return
    arrays: list[Array] = []
    static = _taken_apart(env, key, arrays)
    if isinstance(value, torch.Tensor):
        given = peek(value) if isinstance(value, Tensor) else array_of(env, value)
    else:
        given = lazy_graph.number(value)

    def write(elem: Array, given: Array, *arrays: Array) -> Array:
        return _written(elem, _put_together(static, iter(arrays)), given)

    self._elem = lazy_graph.call(("setitem", static), write, peek(self), given, *arrays)
    count_write(self)


def _taken_apart(env: Environment, key: Any, arrays: list[Array]) -> Any:
    """What is fixed in a key, and its arrays."""
    if isinstance(key, tuple):
        return tuple([_taken_apart(env, item, arrays) for item in key])
    if isinstance(key, (list, torch.Tensor)):
        arrays.append(peek(key) if isinstance(key, Tensor) else _key(env, key))
        return _ARRAY
    return ("slice", key.start, key.stop, key.step) if isinstance(key, slice) else key


_ARRAY = "array"


def _put_together(static: Any, arrays: Iterator[Array]) -> Any:
    if type(static) is tuple and static and static[0] == "slice":
        return slice(*static[1:])
    if isinstance(static, tuple):
        return tuple([_put_together(item, arrays) for item in static])
    if static != _ARRAY:
        return static
    array = next(arrays)
    return array.astype(bool) if array.dtype == jnp.uint8 else array  # torch: uint8 is a mask


def _written(elem: Array, place: Any, value: Array) -> Array:
    """``elem`` after `elem[place] = value`."""
    if isinstance(place, tuple) and len(place) == 1:
        place = place[0]
    value = value.astype(elem.dtype)
    while value.ndim and value.shape[0] == 1:  # JAX allows no extra dimensions
        value = value[0]
    if isinstance(place, jax.Array) and place.dtype == jnp.bool_:
        made = jaten._shape_static_boolean_index_put(elem, place, value, is_sequential=False)
        return made.astype(elem.dtype)  # `counts[mask] = 0.5` keeps the integer dtype
    return elem.at[place].set(value)


def install(env: Environment) -> None:
    """Replace writes by index; reads are in the table of replaced functions."""
    register(env, torch.ops.aten.new_empty_strided, _new_empty_strided, of_arrays=False)
    patch(Tensor, __setitem__=_setitem)
