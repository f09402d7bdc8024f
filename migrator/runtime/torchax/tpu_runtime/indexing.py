"""Indexing: `x[key]` and `x[key] = value` with torch's meaning.

torchax 0.0.13 loses the gradient in both, accepts no CPU tensor and no list as an index, and
returns an object of its own that is no tensor for slices.
"""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchax.ops import jaten
from torchax.tensor import Environment, Tensor

from . import modes
from .calls import Function, is_device_tensor, native, needs_gradient, patch, register, replaces
from .device import DEVICE_TYPE
from .views import alias, array_of, count_write, layout_of

NEEDED_BY = "<unusual>"


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
    return key


def _plain(key: Any) -> Any:
    """Slices by 0-dim tensors (`x[: n]`) with numbers instead, other sequences as lists."""
    if isinstance(key, tuple):
        return tuple(_plain(item) for item in key)
    if isinstance(key, range):
        return list(key)
    if isinstance(key, slice):
        return slice(*(None if v is None else int(v) for v in (key.start, key.stop, key.step)))
    return key


def of_base(
    tensor: Any, size: Any, strides: Any, offset: int | None = None
) -> tuple[Any, Any, Any, int]:
    """The arguments of `as_strided`, which counts positions in memory: in the base's array."""
    if offset is None:
        offset = torch.Tensor.storage_offset(tensor)
    dtype = tensor.dtype
    while (link := tensor.__dict__.get("_link")) is not None and link.parent.dtype == dtype:
        tensor = link.parent
    return tensor, size, strides, offset


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
    key = _plain(key)
    if not isinstance(tensor, Tensor):
        if is_device_tensor(tensor):
            return NotImplemented
        return native(function, (tensor, _on_cpu(key)), {})
    is_basic, may_need = _is_basic(key), tensor.is_floating_point() or tensor.is_complex()
    if needs_gradient(tensor) or (is_basic and may_need and not _is_whole(tensor)):
        # Through ATen: torchax's own indexing drops the gradient.
        with env._dispatch_mode:
            return function(tensor, _tensors(env, key))
    if not is_basic:
        return Tensor(tensor._elem[_key(env, key)], env)
    shape = native(function, (layout_of(tensor), key), {})
    result = alias(
        tensor,
        tensor._elem[key],
        shape,
        replay=lambda base: base[key],
        write=lambda base, value: base.at[key].set(value),
    )
    if not may_need:
        return result
    with _Gives(result):  # tell autograd: a tensor that needs a gradient may be written to it
        return torch.as_strided(tensor, shape.size(), shape.stride(), shape.storage_offset())


class _Gives(TorchDispatchMode):
    """The next operator returns a known result."""

    def __init__(self, result: Tensor) -> None:
        super().__init__()
        self._result = result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._result


def _is_whole(tensor: Tensor) -> bool:
    """Whether autograd's base of ``tensor`` has the memory layout of its gradient."""
    with torch._C.DisableTorchFunction():
        base = tensor._base if tensor._is_view() else tensor
        return base.storage_offset() == 0 and base.is_contiguous()  # type: ignore[union-attr]


def _on_cpu(key: Any) -> Any:
    if isinstance(key, (tuple, list)):
        return type(key)(_on_cpu(item) for item in key)
    return key.torch() if is_device_tensor(key) else key


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    """`self[key] = value`; ``value`` may be a number, a tensor on either device, or an array."""
    env = self._env
    key = _plain(key)
    if isinstance(value, torch.Tensor):
        if not is_device_tensor(value):
            value = Tensor(env.t2j_copy(value), env)
    elif not isinstance(value, (int, float, bool, complex)):
        value = Tensor(env.t2j_copy(native(torch.as_tensor, (value,), {})), env)
    if needs_gradient((self, value)):
        with env._dispatch_mode:
            torch.Tensor.__setitem__(self, _tensors(env, key), value)
        return
    elem = self._elem
    if isinstance(value, torch.Tensor):
        array = array_of(env, value)
    else:  # a number changes the dtype of a mask
        array = bool(value) if elem.dtype == jnp.bool_ else value
    place = _key(env, key)
    if isinstance(place, tuple) and len(place) == 1:
        place = place[0]
    if isinstance(array, jax.Array):
        array = array.astype(elem.dtype)
        while array.ndim and array.shape[0] == 1:  # JAX allows no extra dimensions
            array = array[0]
    if isinstance(place, jax.Array) and place.dtype == jnp.bool_:
        made = jaten._shape_static_boolean_index_put(elem, place, array, is_sequential=False)
        self._elem = made.astype(elem.dtype)  # `counts[mask] = 0.5` keeps the integer dtype
    else:
        self._elem = elem.at[place].set(array)
    count_write(self)


def install(env: Environment) -> None:
    """Replace writes by index; reads are in the table of replaced functions."""
    register(env, torch.ops.aten.new_empty_strided, _new_empty_strided, of_arrays=False)
    patch(Tensor, __setitem__=_setitem)
    patch(modes, of_base=of_base)
