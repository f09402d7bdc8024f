"""Sums and arithmetic that torchax 0.0.13 gets wrong for integers or numbers, or doesn't support.

Each docstring says what is wrong. Found by benchmarks/operator_audit.py. Arguments already have
the dtype of the result here, see result_dtypes.py.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops import mappings
from torchax.tensor import Environment

from ..dispatch.calls import register
from ..dispatch.jax_kernels import Array


def _is_exact(*values: Any) -> bool:
    return all(jnp.issubdtype(jnp.result_type(value), jnp.integer) for value in values)


def _power(x: Any, y: Any) -> Array:
    """Powers of integers go through float32, which is wrong beyond 2**24."""
    if not _is_exact(x, y):
        return jnp.power(x, float(y) if type(y) is int else y)
    if type(y) is int:
        return jnp.power(x, y)
    below = jnp.where(x == 1, 1, jnp.where(x == -1, 1 - 2 * (y % 2), 0))
    return jnp.where(y < 0, below, jnp.power(jnp.asarray(x, y.dtype), jnp.maximum(y, 0)))


def _divide(x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    """Quotients of integers rounded toward zero also go through float32."""
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    if rounding_mode == "trunc" and _is_exact(x, y):
        dtype = jnp.result_type(x, y)  # a number takes the tensor's dtype
        return jax.lax.div(*jnp.broadcast_arrays(jnp.asarray(x, dtype), jnp.asarray(y, dtype)))
    quotient = jnp.true_divide(x, y)
    return jnp.trunc(quotient) if rounding_mode == "trunc" else quotient


def _over(reduce: Callable[..., Array]) -> Callable[..., Array]:
    """`dtype=` is ignored, or raises."""

    def reduced(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
        if dtype is not None:
            x = x.astype(jax.dtypes.canonicalize_dtype(mappings.t2j_dtype(dtype)))
        axes = tuple(dim) if isinstance(dim, (tuple, list)) else dim
        return reduce(x, axis=None if axes == () or x.ndim == 0 else axes, keepdims=keepdim)

    return reduced


def _gamma(a: Any, x: Any, *, of: Callable[..., Array], small: float) -> Array:
    """Wrong if ``a`` is 0 or infinite; torchax tests whether all elements at once are below 0.

    ``small``: the limit for small ``x``.
    """
    a, x = jnp.asarray(a), jnp.asarray(x)
    endless = jnp.isinf(a)
    wrong = jnp.isnan(x) | (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (endless & jnp.isinf(x))
    known = [wrong, a == 0, (x == 0) | endless]
    inside = of(jnp.where((a == 0) | endless, 1.0, a), x)
    return jnp.select(known, [jnp.nan, 1 - small, small], inside)


def _zeta(x: Any, q: Any) -> Array:
    """Wrong at poles, and for infinite ``x``."""
    x, q = jnp.asarray(x) * 1.0, jnp.asarray(q) * 1.0
    is_whole = q == jnp.floor(q)
    wrong = (x < 1) | ((q < 0) & ~is_whole & (x != jnp.floor(x)))
    known = [x == 1, wrong, (q <= 0) & is_whole, jnp.isinf(x) & (q <= 1)]
    values: list[Any] = [jnp.inf, jnp.nan, jnp.inf, jnp.power(q, -x)]
    return jnp.select(known, values, jax.scipy.special.zeta(x, q))


def _times_log(x: Any, y: Any, *, log: Callable[..., Array]) -> Array:
    """Raises for a number."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    return jnp.where((x == 0) & ~jnp.isnan(y), 0.0, x * log(y))


def _isin(x: Any, of: Any, *, assume_unique: bool = False, invert: bool = False) -> Array:
    """Raises for a number."""
    return jnp.isin(jnp.asarray(x), jnp.asarray(of), invert=invert)


def _clamp(x: Any, min: Any = None, max: Any = None) -> Array:
    """NaN alone doesn't count as a bound."""
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (min, max)):
        if min is None or max is None:
            return x
    return jnp.clip(x, min, max)


def _complex(real: Array, imaginary: Array) -> Array:
    """Not a number if the imaginary part is infinite."""
    return jax.lax.complex(*jnp.broadcast_arrays(real, imaginary))


def _of_arrays(function: Callable[..., Array]) -> Callable[..., Array]:
    """Polynomials don't accept a number."""
    return lambda x, n: function(jnp.asarray(x) * 1.0, jnp.asarray(n) * 1.0)


def lerp(start: Array, end: Array, weight: Any) -> Array:
    """Raises for transposed tensors, in an operator that torchax doesn't know."""
    if isinstance(weight, jax.Array):
        near, far = weight * (end - start) + start, (weight - 1) * (end - start) + end
        return jnp.where(jnp.abs(weight) >= 0.5, far, near)
    number = start.dtype.type(weight)
    if abs(number) >= 0.5:
        return (number - 1) * (end - start) + end
    return number * (end - start) + start


def _wide(*arrays: Array) -> tuple[Array, ...]:
    """16-bit floats as torch computes with them."""
    narrow = all(array.dtype in (jnp.bfloat16, jnp.float16) for array in arrays)
    return tuple(array.astype(jnp.float32) for array in arrays) if narrow else arrays


def _add_product(x: Array, one: Array, other: Array, *, value: Any = 1) -> Array:
    """Torch's own decomposition doesn't take an array for ``value``, which may vary."""
    start, first, second = _wide(x, one, other)
    return (start + value * first * second).astype(x.dtype)


def _add_quotient(x: Array, one: Array, other: Array, *, value: Any = 1) -> Array:
    """The same for ``addcdiv``."""
    start, first, second = _wide(x, one, other)
    return (start + value * first / second).astype(x.dtype)


def install(env: Environment) -> None:
    """Replace the operators."""
    aten = torch.ops.aten
    for operator, function in (
        (aten.pow, _power),
        (aten.fmod, jnp.fmod),  # through float32
        (aten.div, _divide),
        (aten.atan2, jnp.arctan2),  # if the first is a number
        (aten.copysign, jnp.copysign),
        (aten.igamma, partial(_gamma, of=jax.scipy.special.gammainc, small=0)),
        (aten.igammac, partial(_gamma, of=jax.scipy.special.gammaincc, small=1)),
        (aten.special_zeta, _zeta),
        (aten.xlogy, partial(_times_log, log=jnp.log)),
        (aten.special_xlog1py, partial(_times_log, log=jnp.log1p)),
        (aten.isin, _isin),
        (aten.lerp, lerp),
        (aten.addcmul, _add_product),
        (aten.addcdiv, _add_quotient),
        (aten.clamp.default, _clamp),
        (aten.complex, _complex),
        (aten.sum, _over(jnp.sum)),
        (aten.mean, _over(jnp.mean)),
    ):
        register(env, operator, function, of_arrays=True)
    for operator, stock in [*env._ops.items()]:
        if "_polynomial_" in str(operator):
            register(env, operator, _of_arrays(stock.func), of_arrays=True)
