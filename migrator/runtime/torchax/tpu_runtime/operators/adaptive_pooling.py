"""Adaptive max pooling with its gradient: torchax 0.0.13 has none."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from torchax.tensor import Environment

from ..dispatch.calls import register
from ..dispatch.jax_kernels import Array, kernel
from .pooling import scatter


def _pool(dims: int) -> Any:
    @kernel
    def pool(x: Array, output_size: Sequence[int]) -> tuple[Array, Array]:
        leading, inner = x.shape[: x.ndim - dims], x.shape[x.ndim - dims :]
        if not x.size:
            shape = (*leading, *output_size)
            return jnp.zeros(shape, x.dtype), jnp.zeros(shape, "int32")
        places = jnp.arange(math.prod(inner)).reshape(inner)
        values, indices = [], []
        for cell in itertools.product(*(range(n) for n in output_size)):
            window = tuple(
                slice(i * size // n, -(-(i + 1) * size // n))
                for i, size, n in zip(cell, inner, output_size, strict=True)
            )
            part = x[(..., *window)].reshape(*leading, -1)
            best = jnp.argmax(part, -1)
            values.append(jnp.take_along_axis(part, best[..., None], -1)[..., 0])
            indices.append(places[window].reshape(-1)[best])
        shape = (*leading, *output_size)
        return jnp.stack(values, -1).reshape(shape), jnp.stack(indices, -1).reshape(shape)

    return pool


def _pool_backward(dims: int) -> Any:
    @kernel
    def backward(gradient: Array, x: Array, indices: Array) -> Array:
        return scatter(gradient, x, indices, dims) if x.size else jnp.zeros_like(x)

    return backward


def install(env: Environment) -> None:
    """Add the pools and their backward passes."""
    aten = torch.ops.aten
    for dims in (2, 3):
        forward = getattr(aten, f"adaptive_max_pool{dims}d")
        register(env, forward, _pool(dims), of_arrays=True)
        backward = getattr(aten, f"adaptive_max_pool{dims}d_backward")
        register(env, backward, _pool_backward(dims), of_arrays=True)
