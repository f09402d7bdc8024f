"""Sums and arithmetic that torchax 0.0.13 computes wrong for integers, or not at all.

Each says what is wrong. Found by benchmarks/operator_audit.py. Arguments are in the dtype of the
result here, see dtypes.py.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops import mappings
from torchax.tensor import Environment

from .calls import register
from .kernels import Array

NEEDED_BY = "<unusual>"


def _is_exact(*values: Any) -> bool:
    return all(jnp.issubdtype(jnp.result_type(value), jnp.integer) for value in values)


def _power(x: Any, y: Any) -> Array:
    """Powers of integers go by float32, wrong beyond 2**24."""
    if not _is_exact(x, y):
        return jnp.power(x, float(y) if type(y) is int else y)
    if type(y) is int:
        return jnp.power(x, y)
    below = jnp.where(x == 1, 1, jnp.where(x == -1, 1 - 2 * (y % 2), 0))
    return jnp.where(y < 0, below, jnp.power(jnp.asarray(x, y.dtype), jnp.maximum(y, 0)))


def _divide(x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    """Quotients of integers toward zero go by float32, too."""
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    if rounding_mode == "trunc" and _is_exact(x, y):
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    quotient = jnp.true_divide(x, y)
    return jnp.trunc(quotient) if rounding_mode == "trunc" else quotient


def _over(reduce: Callable[..., Array]) -> Callable[..., Array]:
    """`dtype=` is left out, or raises."""

    def reduced(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
        if dtype is not None:
            x = x.astype(jax.dtypes.canonicalize_dtype(mappings.t2j_dtype(dtype)))
        axes = tuple(dim) if isinstance(dim, (tuple, list)) else dim
        return reduce(x, axis=None if axes == () or x.ndim == 0 else axes, keepdims=keepdim)

    return reduced


def _upper_gamma(a: Any, x: Any) -> Array:
    """torchax asks whether all elements at once are below 0 where ``x`` is a number."""
    a, x = jnp.asarray(a), jnp.asarray(x)
    return jax.scipy.special.gammaincc(jnp.where(a < 0, jnp.nan, a), jnp.where(x < 0, jnp.nan, x))


def install(env: Environment) -> None:
    """Replace the operators."""
    aten = torch.ops.aten
    for operator, function in (
        (aten.pow, _power),
        (aten.fmod, jnp.fmod),  # by float32
        (aten.div, _divide),
        (aten.atan2, jnp.arctan2),  # where the first is a number
        (aten.copysign, jnp.copysign),
        (aten.igammac, _upper_gamma),
        (aten.sum, _over(jnp.sum)),
        (aten.mean, _over(jnp.mean)),
    ):
        register(env, operator, function, of_arrays=True)
