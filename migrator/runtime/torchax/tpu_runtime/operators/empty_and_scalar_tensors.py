"""Tensors without elements or dimensions, dimensions counted from the end, bools, and views as
dtypes of the same size, where torchax 0.0.13 raises; a loss that torch 2.9 decomposes wrongly.

Each docstring says for which arguments. Found by benchmarks/operator_audit.py.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops import mappings
from torchax.tensor import Environment

from ..dispatch.calls import Function, register
from ..dispatch.jax_kernels import Array

_WIDE = (torch.int64, torch.float64, torch.complex128)
_PARTS = (torch.int32, torch.uint32, torch.int16, torch.uint16, torch.int8, torch.uint8, torch.bool)


def _unfold(stock: Function) -> Function:
    """No elements."""

    def unfold(x: Array, dimension: int, size: int, step: int) -> Array:
        if x.size or size > x.shape[dimension]:
            return stock(x, dimension, size, step)
        windows = (x.shape[dimension] - size) // step + 1
        shape = [*x.shape, size]
        shape[dimension % x.ndim] = windows
        return jnp.zeros(shape, x.dtype)

    return unfold


def _sign(x: Array) -> Array:
    """Bools; the sign of NaN is 0, which is the gradient of `abs` there."""
    if x.dtype == jnp.bool_:
        return x
    return jnp.sign(x) if jnp.iscomplexobj(x) else jnp.where(jnp.isnan(x), 0, jnp.sign(x))


def _at_places(stock: Function) -> Function:
    """Numbers, bools, no indices, and an index without dimensions, which meant all of them."""

    def scatter(x: Array, dim: int, index: Array, source: Any, *args: Any, **rest: Any) -> Array:
        if not index.size:
            return x
        if not isinstance(source, jax.Array):
            source = jnp.full(index.shape, source, x.dtype)
        if index.ndim < x.ndim:
            index, source = index.reshape(1), source.reshape(-1)
        if x.dtype != jnp.bool_:
            return stock(x, dim, index, source, *args, **rest)
        source = source.astype("int32")
        return stock(x.astype("int32"), dim, index, source, *args, **rest) != 0

    return scatter


def _index_fill(x: Array, dim: int, index: Array, value: Any) -> Array:
    """A number that is a CPU tensor."""
    if not x.ndim:
        return jnp.where(index.size > 0, jnp.asarray(value, x.dtype), x)
    places = (slice(None),) * (dim % x.ndim) + (index.reshape(-1),)
    return x.at[places].set(jnp.asarray(value, x.dtype))


def _put_at(stock: Function) -> Function:
    """Bools added to bools."""

    def put(x: Array, places: Any, values: Array, accumulate: bool = False) -> Array:
        if accumulate and x.dtype == jnp.bool_:
            return stock(x.astype("int32"), places, values.astype("int32"), True) != 0
        return stock(x, places, values, accumulate)

    return put


def _unfold_backward(gradient: Array, shape: Sequence[int], dim: int, size: int,
                     step: int) -> Array:  # fmt: skip
    """No elements, and a dimension counted from the end."""
    if not shape:
        return gradient.sum()
    dim %= len(shape)
    result = jnp.zeros(shape, gradient.dtype)
    if not gradient.size:
        return result
    places = jnp.arange(gradient.shape[dim])[:, None] * step + jnp.arange(size)
    added = jnp.moveaxis(gradient, (dim, -1), (0, 1))
    return jnp.moveaxis(jnp.moveaxis(result, dim, 0).at[places].add(added), 0, dim)


def _nonnegative_dimension(stock: Function) -> Function:
    """A dimension counted from the end."""

    def along(x: Array, dim: int, **rest: Any) -> Any:
        return stock(x, dim % x.ndim if x.ndim else dim, **rest)

    return along


def _extreme_so_far(stock: Function) -> Function:
    """A dimension counted from the end. The place of NaN is that of the last; stock goes on."""
    compute = _nonnegative_dimension(stock)

    def along(x: Array, dim: int) -> tuple[Array, Array]:
        values, places = compute(x, dim)
        if not jnp.issubdtype(x.dtype, jnp.floating) or not x.size or not x.ndim:
            return values, places
        numbers = jax.lax.broadcasted_iota(places.dtype, x.shape, dim % x.ndim)
        last = jax.lax.cummax(jnp.where(jnp.isnan(x), numbers, 0), dim % x.ndim)
        return values, jnp.where(jnp.isnan(values), last, places)

    return along


def _flip(x: Array, dims: Sequence[int]) -> Array:
    """A tensor that has no dimensions."""
    return jnp.flip(x, tuple(dims)) if x.ndim else x


def _var(stock: Function) -> Function:
    """Along a dimension of a tensor that has none; along none, as `x.std(())`, is along all."""

    def var(x: Array, dim: Any = None, **rest: Any) -> Array:
        return stock(x, None if not x.ndim or dim in ((), []) else dim, **rest)

    return var


def _median(stock: Function) -> Function:
    """NaN if there are no elements."""

    def median(x: Array, *args: Any, **kwargs: Any) -> Any:
        if x.size or args or kwargs:
            return stock(x, *args, **kwargs)
        return jnp.full((), math.nan, x.dtype)

    return median


def _nan_to_num(x: Array, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Array:
    """Complex numbers: both parts."""
    return jnp.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


def _group_norm(stock: Function) -> Function:
    """The gradient if there are no elements."""

    def group_norm(x: Array, weight: Any, bias: Any, n: int, c: int, size: int, group: int,
                   eps: float) -> Any:  # fmt: skip
        if x.size:
            return stock(x, weight, bias, n, c, size, group, eps)
        statistics = jnp.zeros((n, group), x.dtype)
        return x, statistics, statistics

    return group_norm


def _as_dtype(x: Array, dtype: torch.dtype) -> Array:
    """`x.view(dtype)`, also with another width."""
    if dtype in _WIDE or (x.dtype == jnp.int32 and dtype in _PARTS):
        raise RuntimeError("64-bit numbers have 4 bytes on this device: view a CPU copy")
    wanted = jnp.dtype(mappings.t2j_dtype(dtype))
    if wanted == x.dtype:
        return x
    if jnp.iscomplexobj(x):
        x = jnp.stack([x.real, x.imag], -1).reshape(*x.shape[:-1], -1)
    if wanted.kind == "c":
        pairs = _as_dtype(x, torch.float32).reshape(*x.shape[:-1], -1, 2)
        return jax.lax.complex(pairs[..., 0], pairs[..., 1])
    x = x.astype("uint8") if x.dtype == jnp.bool_ else x
    is_bool, wanted = wanted == jnp.bool_, jnp.dtype("uint8") if wanted == jnp.bool_ else wanted
    ratio = wanted.itemsize // x.dtype.itemsize
    if ratio > 1:
        if not x.ndim or x.shape[-1] % ratio:
            raise RuntimeError(f"{x.shape} has no multiple of {ratio} elements for {dtype}")
        x = x.reshape(*x.shape[:-1], -1, ratio)
    result = jax.lax.bitcast_convert_type(x, wanted)
    if result.ndim > x.ndim:
        result = result.reshape(*x.shape[:-1], -1)
    return result.astype(bool) if is_bool else result


def _places(repeats: Array, output_size: int | None = None) -> Array:
    """With `output_size=`, which a compiled step needs: otherwise the shape is unknown."""
    places = jnp.arange(repeats.shape[0], dtype=repeats.dtype)
    if output_size is not None and not isinstance(repeats, jax.core.Tracer):
        if int(repeats.sum()) != output_size:
            raise RuntimeError(f"output_size={output_size} is not the sum of the repeats")
    return jnp.repeat(places, repeats, total_repeat_length=output_size)


def _lu_unpack(stock: Function) -> Function:
    """No elements."""

    def unpack(lu: Array, pivots: Array, data: bool = True, permutation: bool = True) -> Any:
        if lu.size:
            return stock(lu, pivots, data, permutation)
        *batch, rows, columns = lu.shape
        least = min(rows, columns)
        whole = jnp.broadcast_to(jnp.eye(rows, dtype=lu.dtype), (*batch, rows, rows))
        return whole, lu[..., :least], lu[..., :least, :]

    return unpack


def _loss_backward(stock: Function) -> Function:
    """No elements: the mean divides by their number."""

    def backward(gradient: Any, x: Any, *args: Any) -> Any:
        return stock(gradient, x, *args) if x.numel() else torch.zeros_like(x)

    return backward


def _multilabel_margin(x: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    """torch's decomposition also counts the indices after the last label."""
    rows, labels = jnp.atleast_2d(x), jnp.atleast_2d(target)
    listed = jnp.cumprod(labels != -1, 1, dtype="int32") == 1
    labels = jnp.where(listed, labels, 0)
    is_label = (jax.nn.one_hot(labels, rows.shape[1]) * listed[..., None]).any(1)
    margins = 1 - jnp.take_along_axis(rows, labels, 1)[..., None] + rows[:, None]
    counts = listed[..., None] & ~is_label[:, None]
    losses = jnp.where(counts, margins.clip(0), 0).sum((1, 2)) / rows.shape[1]
    losses = (lambda loss: loss.reshape(target.shape[:-1]), jnp.mean, jnp.sum)[reduction](losses)
    return losses.astype(x.dtype), is_label.astype(x.dtype).reshape(target.shape)


def install(env: Environment) -> None:
    """Replace the operators, or wrap torchax's own."""
    aten = torch.ops.aten
    for operator, around in (
        (aten.unfold, _unfold),
        (aten.scatter, _at_places),
        (aten.scatter_add, _at_places),
        (aten.scatter_reduce, _at_places),
        (aten.index_put, _put_at),
        (aten.var.correction, _var),
        (aten.var_mean.correction, _var),
        (aten.lu_unpack, _lu_unpack),
        (aten.cummax, _extreme_so_far),
        (aten.cummin, _extreme_so_far),
        (aten.logcumsumexp, _nonnegative_dimension),
        (aten.median, _median),
        (aten.native_group_norm, _group_norm),
    ):
        register(env, operator, around(env._ops[operator].func), of_arrays=True)
    for operator, function in (
        (aten.flip, _flip),
        (aten.sign, _sign),
        (aten.sgn, _sign),
        (aten.index_fill, _index_fill),
        (aten.nan_to_num.default, _nan_to_num),
        (aten.unfold_backward, _unfold_backward),
        (aten.view.dtype, _as_dtype),
        (aten.repeat_interleave.Tensor, _places),
        (aten.multilabel_margin_loss_forward.default, _multilabel_margin),
    ):
        register(env, operator, function, of_arrays=True)
    for name in ("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward"):
        operator = getattr(aten, name).default
        backward = _loss_backward(env._decomps[operator].func)
        register(env, operator, backward, of_arrays=False)
    nanmedian = _median(env._ops[aten.nanmedian].func)
    register(env, aten.nanmedian.default, nanmedian, of_arrays=True)
    env._ops.pop(torch.Tensor.repeat_interleave, None)  # accepts any output_size
