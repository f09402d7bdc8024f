"""Single operators that torchax 0.0.13 gets wrong, or doesn't support for all arguments.

Each docstring says what is wrong. Found by benchmarks/operator_audit.py.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops import jtorch, mappings
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import Function, holds_device_tensor, is_device_tensor, register, replaces
from ..dispatch.jax_kernels import Array, kernel


def _full_like(
    x: Array, fill_value: Any, *, dtype: torch.dtype | None = None, **rest: Any
) -> Array:
    """Raises for arguments that torch's own code passes; `div(rounding_mode=...)` needs it."""
    return jnp.full(x.shape, fill_value, x.dtype if dtype is None else mappings.t2j_dtype(dtype))


def _zeros(size: Sequence[int], *, dtype: torch.dtype | None = None, **rest: Any) -> Array:
    """Torch's gradient that is 0 everywhere; torchax lacks it."""
    return jnp.zeros(size, mappings.t2j_dtype(dtype or torch.get_default_dtype()))


@kernel
def _constant_pad(x: Array, pad: Sequence[int], value: Any = 0) -> Array:
    """Negative padding after a positive one raises, as in the gradient of a padded unfold."""
    axes = len(pad) // 2
    pairs = [(pad[2 * n], pad[2 * n + 1], 0) for n in reversed(range(axes))]
    widths = [(0, 0, 0)] * (x.ndim - axes) + pairs
    return jax.lax.pad(x, jnp.asarray(value, x.dtype), widths)


@kernel
def _pad(x: Array, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Array:
    """The same as `_constant_pad`."""
    if mode == "constant":
        return _constant_pad(x, pad, 0 if value is None else value)
    return jtorch.pad(x, pad, mode)


@kernel
def _put_elements(x: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """`put`, also of bools, and the gradient of `take`: an index that occurs twice got one of two
    values."""
    if accumulate and x.dtype == jnp.bool_:
        return _put_elements(x.astype("int32"), index, source, True) != 0
    places, values = index.reshape(-1), source.reshape(-1).astype(x.dtype)
    flat = x.reshape(-1)
    flat = flat.at[places].add(values) if accumulate else flat.at[places].set(values)
    return flat.reshape(x.shape)


@kernel
def _slice_scatter(
    x: Array, source: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Array:
    """A negative ``dim`` writes everywhere, silently; the gradient of `narrow(-1, ...)` is this."""
    place = [slice(None)] * x.ndim
    place[dim] = slice(start, end, step)
    return x.at[tuple(place)].set(source.astype(x.dtype))


def _index_copy(stock: Function) -> Function:
    """A single index is written in place, as a cache needs it; general indexing copies it all."""

    def index_copy(x: Array, dim: int, index: Array, source: Array) -> Array:
        if not x.ndim or index.size != 1:
            return stock(x, dim, index, source)
        shape = (*x.shape[: dim % x.ndim], 1, *x.shape[dim % x.ndim + 1 :])
        return jax.lax.dynamic_update_slice_in_dim(x, source.reshape(shape), index.reshape(()), dim)

    return index_copy


@kernel
def _diagonal_scatter(
    x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    """Negative dimensions raise."""
    places = jnp.arange(x.size).reshape(x.shape)
    diagonal = jnp.diagonal(places, offset, dim1, dim2)
    flat = x.reshape(-1).at[diagonal.reshape(-1)].set(source.reshape(-1).astype(x.dtype))
    return flat.reshape(x.shape)


@kernel
def _vector_norm(
    x: Array, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    """A tensor without dimensions gave an integer, and no gradient; squares of float16 overflow."""
    result = x.dtype if dtype is None else jnp.dtype(dtype)
    x = x.astype(jnp.promote_types(result, jnp.float32))
    return _of_sizes(x, ord, dim, keepdim).astype(result)


def _of_sizes(x: Array, ord: float, dim: Any, keepdim: bool) -> Array:
    axes = dim if isinstance(dim, int) else tuple(dim or ())
    axis = None if axes == () or x.ndim == 0 else axes
    size = jnp.abs(x)
    if ord == math.inf:
        return jnp.max(size, axis, keepdims=keepdim)
    if ord == -math.inf:
        return jnp.min(size, axis, keepdims=keepdim)
    if ord == 0:
        return jnp.sum((x != 0).astype(size.dtype), axis, keepdims=keepdim)
    if ord == 1:
        return jnp.sum(size, axis, keepdims=keepdim)
    if ord == 2:
        return jnp.sqrt(jnp.sum(size**2, axis, keepdims=keepdim))
    return jnp.sum(size**ord, axis, keepdims=keepdim) ** (1.0 / ord)


def _norm(x: Array, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None):  # type: ignore[no-untyped-def]
    wanted = None if dtype is None else mappings.t2j_dtype(dtype)
    return _vector_norm(x, float(ord), dim, keepdim, wanted)


def _cumulative(of_torchax: Function) -> Function:
    """torchax adds up, or multiplies, 16-bit numbers in 16 bits."""

    def cumulate(x: Array, dim: int, *, dtype: Any = None) -> Array:
        if dtype is not None or x.dtype.itemsize != 2 or not jnp.issubdtype(x.dtype, jnp.floating):
            return of_torchax(x, dim, dtype=dtype)
        return of_torchax(x.astype("float32"), dim).astype(x.dtype)

    return cumulate


@kernel
def _digamma(x: Array) -> Array:
    """Off by about 1e-3 near its poles at 0, -1, -2, ...: there pi*x loses relevant digits of x."""
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    reflected = jax.lax.digamma(1 - x) - jnp.pi / jnp.tan(jnp.pi * (x - jnp.round(x)))
    below = jnp.where((x == jnp.round(x)) & (x < 0), jnp.nan, reflected)
    below = jnp.where(x == 0, -jnp.copysign(jnp.inf, x), below)
    return jnp.where(x > 0, jax.lax.digamma(jnp.where(x > 0, x, 1.0)), below)


@kernel
def _searchsorted(edges: Array, values: Array, side: str, dtype: str, order: Array | None) -> Array:
    if order is not None:
        edges = jnp.take_along_axis(edges, order, -1)
    if edges.ndim == 1:
        return jnp.searchsorted(edges, values, side=side).astype(dtype)
    rows, wanted = edges.reshape(-1, edges.shape[-1]), values.reshape(-1, values.shape[-1])
    found = jax.vmap(lambda row, value: jnp.searchsorted(row, value, side=side))(rows, wanted)
    return found.reshape(values.shape).astype(dtype)


def _search(
    edges: Array, values: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Array | None = None,
) -> Array:  # fmt: skip
    """`right=` raises."""
    where = "right" if right or side == "right" else "left"
    values = jnp.asarray(values)
    return _searchsorted(edges, values, where, "int32" if out_int32 else "int64", sorter)


def _bucketize(values: Any, edges: Array, *, out_int32: bool = False, right: bool = False) -> Array:
    return _search(edges, values, out_int32=out_int32, right=right)


@replaces(torch.take_along_dim, torch.Tensor.take_along_dim)
def _take_along_dim(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """With 64 bits off, an index is int32 on the device, and torch requires int64."""
    if not holds_device_tensor((args, kwargs)) or "out" in kwargs:
        return NotImplemented
    names = ("input", "indices", "dim")[len(args) :]
    operands: tuple[Any, ...] = args
    tensor, index, dim = (*operands, *(kwargs.get(name) for name in names))
    with env:
        if dim is None:
            return tensor.flatten().gather(0, index.flatten())
        dim %= tensor.dim()
        shape = torch.broadcast_shapes(
            *(tuple(1 if n == dim else s for n, s in enumerate(t.shape)) for t in (tensor, index))
        )
        tensor, index = (
            t.expand(*shape[:dim], t.size(dim), *shape[dim + 1 :]) for t in (tensor, index)
        )
        return tensor.gather(dim, index)


@kernel
def _nanmedian(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """With NaNs, the indices were those of another order: the gradient went to wrong places."""
    if x.ndim == 0 or not x.size:
        whole = x if x.ndim == 0 else jnp.sum(x, dim, keepdims=keepdim)
        return whole, jnp.zeros(whole.shape, "int32")
    order = jnp.argsort(jnp.where(jnp.isnan(x), jnp.inf, x), axis=dim)
    numbers = jnp.sum(~jnp.isnan(x), axis=dim, keepdims=True)
    place = jnp.take_along_axis(order, jnp.maximum((numbers - 1) // 2, 0), axis=dim)
    values = jnp.take_along_axis(x, place, axis=dim)
    if not keepdim:
        values, place = values.squeeze(dim), place.squeeze(dim)
    return values, place.astype("int32")


@replaces(torch.tensor_split, torch.Tensor.tensor_split)
def _tensor_split(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """The indices to split at may be in a tensor, which torch requires on the CPU."""
    names = ("input", "tensor_indices_or_sections")[len(args) :]
    tensor, places = [*args, *map(kwargs.get, names)][:2]
    if not is_device_tensor(places):
        return NotImplemented
    rest = {name: value for name, value in kwargs.items() if name not in names}
    with env:
        return function(tensor, places.tolist(), *args[2:], **rest)


def _split_with_sizes(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    """Sizes that don't add up to the whole are silently accepted."""
    if sum(sizes) != x.shape[dim]:
        raise RuntimeError(f"split sizes {list(sizes)} do not sum to {x.shape[dim]}")
    return jnp.split(x, list(itertools.accumulate(sizes))[:-1], dim)


def _split(x: Array, size: int, dim: int = 0) -> list[Array]:
    """Raises for no elements."""
    starts = range(0, max(x.shape[dim], 1), max(size, 1))
    return _split_with_sizes(x, [min(size, x.shape[dim] - start) for start in starts], dim)


@kernel
def _unbind(x: Array, dim: int = 0) -> list[Array]:
    """Its decomposition needs torch's dispatch, which is off while a stale view is read."""
    return [jax.lax.index_in_dim(x, n, dim, keepdims=False) for n in range(x.shape[dim])]


@kernel
def _renorm(weight: Array, indices: Array, max_norm: float, norm_type: float) -> Array:
    """The rows that are looked up, those longer than `max_norm` shortened to it."""
    indices = indices.reshape(-1)
    rows = weight[indices]
    norm = jnp.linalg.norm(rows, ord=norm_type, axis=1, keepdims=True)
    scale = jnp.where(norm > max_norm, max_norm / (norm + 1e-7), 1).astype(weight.dtype)
    return weight.at[indices].set(rows * scale)


def _shortened(env: Environment) -> Function:
    """`nn.Embedding(max_norm=…)`: torchax returns the shortened rows, but doesn't store them."""

    def embedding_renorm_(weight: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
        rows = _renorm(weight.jax(), indices.jax(), float(max_norm), float(norm_type))
        return weight.copy_(Tensor(rows, env))

    return embedding_renorm_


def install(env: Environment) -> None:
    """Replace the operators."""
    aten = torch.ops.aten
    for operator, function in (
        (aten.full_like, _full_like),
        (aten._efficientzerotensor, _zeros),
        (aten.constant_pad_nd, _constant_pad),
        (aten.pad, _pad),
        (aten.put, _put_elements),
        (aten.slice_scatter, _slice_scatter),
        (aten.nanmedian.dim, _nanmedian),
        (aten.diagonal_scatter, _diagonal_scatter),
        (aten.linalg_vector_norm, _norm),
        (aten.digamma, _digamma),
        (aten.searchsorted, _search),
        (aten.bucketize, _bucketize),
        (aten.split, _split),
        (aten.split_with_sizes, _split_with_sizes),
        (aten.unbind, _unbind),
    ):
        register(env, operator, function, of_arrays=True)
    for operator in (aten.cumsum, aten.cumprod):
        register(env, operator, _cumulative(env._ops[operator].func), of_arrays=True)
    for shortcut in (torch.cdist, aten.cdist):  # with p=inf all ones: torch's own takes norms
        env._ops.pop(shortcut)
    index_copy = _index_copy(env._ops[aten.index_copy].func)
    register(env, aten.index_copy, index_copy, of_arrays=True)
    register(env, aten.embedding_renorm_, _shortened(env), of_arrays=False)
