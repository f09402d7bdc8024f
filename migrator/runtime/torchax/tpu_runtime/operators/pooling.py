"""Max and average pooling with their gradients.

torchax 0.0.13: the gradient of max_pool2d is silently wrong; the other pools have none.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torchax.ops import jaten
from torchax.tensor import Environment

from ..dispatch.calls import register
from ..dispatch.jax_kernels import Array, kernel, pull_back


def _per_dimension(value: Any, dims: int) -> list[int]:
    """One number for each dimension, from a number, a list of one, or a full list."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


def _max_pool(dims: int) -> Any:
    @kernel
    def pool(
        x: Array, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        if not x.size:  # of no images: the shapes of one's
            whole = jnp.zeros([n or 1 for n in x.shape], x.dtype)
            results = pool(whole, size, stride, padding, dilation, ceil_mode)
            leading = tuple(slice(n) for n in x.shape[: x.ndim - dims])
            return tuple(result[leading] for result in results)
        return jaten.max_pool(
            x, _per_dimension(size, dims), _per_dimension(stride, dims) if stride else None,
            _per_dimension(padding, dims), _per_dimension(dilation, dims), ceil_mode,
            with_index=True,
        )  # fmt: skip

    return pool


def _max_pool_backward(dims: int) -> Any:
    @kernel
    def backward(
        gradient: Array, x: Array, size: Any, stride: Any, padding: Any, dilation: Any,
        ceil_mode: bool, indices: Array,
    ) -> Array:  # fmt: skip
        if not x.size:
            return jnp.zeros_like(x)
        if any(step != 1 for step in _per_dimension(dilation, dims)):
            return scatter(gradient, x, indices, dims)

        def pool(x: Array) -> Array:
            steps = _per_dimension(stride, dims) if stride else None
            return jaten.max_pool(
                x,
                _per_dimension(size, dims),
                steps,
                _per_dimension(padding, dims),
                [1] * dims,
                ceil_mode,
            )

        # XLA gives the whole gradient to the first of several equal maxima, as torch does.
        return pull_back(pool, (x,), gradient)[0]

    return backward


def scatter(gradient: Array, x: Array, indices: Array, dims: int) -> Array:
    """Put the gradient at the positions of the maxima."""
    leading, size = x.shape[: x.ndim - dims], math.prod(x.shape[x.ndim - dims :])

    def one(g: Array, places: Array) -> Array:
        return jnp.zeros(size, g.dtype).at[places].add(g)

    count = math.prod(leading)
    spread = jax.vmap(one)(gradient.reshape(count, -1), indices.reshape(count, -1))
    return spread.reshape(x.shape)


def _counts(
    size: int, window: int, stride: int, padding: int, ceil_mode: bool, count_padding: bool
) -> Any:
    """The divisor for each window along one axis."""
    span = size + 2 * padding - window
    windows = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (windows - 1) * stride >= size + padding:
        windows -= 1  # the last one would start beyond the padded input
    starts = np.arange(windows) * stride - padding
    ends = np.minimum(starts + window, size + padding)
    if count_padding:
        return ends - starts
    return np.minimum(ends, size) - np.maximum(starts, 0)


def _avg_pool(dims: int) -> Any:
    """Torch's averages; torchax 0.0.13 divides by wrong counts with ceil_mode and padding."""

    def pool(
        x: Array, size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: float | None = None,
    ) -> Array:  # fmt: skip
        sizes, pads = _per_dimension(size, dims), _per_dimension(padding, dims)
        steps = _per_dimension(stride, dims) if stride else sizes
        inner = x.shape[x.ndim - dims :]
        counts = [
            _counts(n, k, s, p, ceil_mode, count_include_pad)
            for n, k, s, p in zip(inner, sizes, steps, pads, strict=True)
        ]
        high = [
            (len(c) - 1) * s + k - n - p
            for c, s, k, n, p in zip(counts, steps, sizes, inner, pads, strict=True)
        ]
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        ones = (1,) * (x.ndim - dims)
        sums = jax.lax.reduce_window(
            wide, wide.dtype.type(0), jax.lax.add, (*ones, *sizes), (*ones, *steps),
            [(0, 0)] * len(ones) + [(p, max(h, 0)) for p, h in zip(pads, high, strict=True)],
        )  # fmt: skip
        if divisor_override is not None:
            return (sums / divisor_override).astype(x.dtype)
        for number, divisors in enumerate(counts):
            sums = sums / divisors.reshape([-1 if n == number else 1 for n in range(dims)])
        return sums.astype(x.dtype)

    return pool


def _avg_pool_backward(dims: int) -> Any:
    forward = _avg_pool(dims)

    @kernel
    def backward(gradient: Array, x: Array, *rest: Any) -> Array:
        return pull_back(lambda x: forward(x, *rest), (x,), gradient)[0]

    return backward


@kernel
def _adaptive_avg_pool(x: Array, sizes: Any) -> Array:
    """torchax adds 16-bit numbers up in 16 bits."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return jaten.adaptive_avg_pool2or3d(wide, sizes).astype(x.dtype)


def _adaptive_avg_pool_backward(dims: int) -> Any:
    @kernel
    def backward(gradient: Array, x: Array) -> Array:
        sizes = gradient.shape[gradient.ndim - dims :]
        return pull_back(lambda x: _adaptive_avg_pool(x, sizes), (x,), gradient)[0]

    return backward


def install(env: Environment) -> None:
    """Replace or add the pools and their backward passes."""
    aten = torch.ops.aten
    for dims in (2, 3):
        for name, make in (
            ("max_pool{}d_with_indices", _max_pool),
            ("max_pool{}d_with_indices_backward", _max_pool_backward),
            ("avg_pool{}d_backward", _avg_pool_backward),
            ("_adaptive_avg_pool{}d_backward", _adaptive_avg_pool_backward),
        ):
            register(env, getattr(aten, name.format(dims)), make(dims), of_arrays=True)
        register(env, getattr(aten, f"avg_pool{dims}d"), kernel(_avg_pool(dims)), of_arrays=True)
        adaptive = getattr(aten, f"_adaptive_avg_pool{dims}d")
        register(env, adaptive, _adaptive_avg_pool, of_arrays=True)
    register(env, aten.avg_pool1d, kernel(_avg_pool(1)), of_arrays=True)
