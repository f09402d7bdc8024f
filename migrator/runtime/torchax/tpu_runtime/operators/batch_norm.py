"""BatchNorm, whose running statistics are buffers that a training step has to update.

torchax 0.0.13 computes new running statistics and discards them, so that `model.eval()` after
training silently normalises by mean 0 and variance 1; it would also use the biased variance.
"""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import is_device_tensor, register
from ..dispatch.jax_kernels import Array, kernel, masked, pull_back


def _per_channel(values: Array, like: Array) -> Array:
    return values.reshape([1, -1] + [1] * (like.ndim - 2)).astype(like.dtype)


def _axes(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _normalise(x: Array, weight: Any, bias: Any, mean: Array, var: Array, eps: float) -> Array:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    out = (wide - _per_channel(mean, wide)) * jax.lax.rsqrt(_per_channel(var, wide) + eps)
    if weight is not None:
        out = out * _per_channel(weight, wide)
    if bias is not None:
        out = out + _per_channel(bias, wide)
    return out.astype(x.dtype)


def _statistics(x: Array) -> tuple[Array, Array]:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return jnp.mean(wide, _axes(x)), jnp.var(wide, _axes(x))


@kernel
def _train(x: Array, weight: Any, bias: Any, means: Any, variances: Any, momentum: Any, eps: float):  # type: ignore[no-untyped-def]
    mean, var = _statistics(x)
    out = _normalise(x, weight, bias, mean, var, eps)
    if means is not None:
        count = x.size // x.shape[1]
        unbiased = var * (count / max(count - 1, 1))
        means = ((1 - momentum) * means + momentum * mean).astype(means.dtype)
        variances = ((1 - momentum) * variances + momentum * unbiased).astype(variances.dtype)
    return out, mean, jax.lax.rsqrt(var + eps), means, variances


@kernel
def _evaluate(x: Array, weight: Any, bias: Any, means: Array, variances: Array, eps: float) -> Any:
    nothing = jnp.zeros((0,), jnp.promote_types(x.dtype, jnp.float32))
    return _normalise(x, weight, bias, means, variances, eps), nothing, nothing


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, means: Any, variances: Any, training: bool, momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    env = x._env
    arrays = [t.jax() if is_device_tensor(t) else None for t in (x, weight, bias, means, variances)]
    if not training:
        return env.j2t_iso(_evaluate(*arrays, float(eps)))  # type: ignore[no-any-return]
    # The momentum as an array: with momentum=None it is a different number in each step.
    *results, new_means, new_variances = _train(*arrays, jnp.asarray(momentum), float(eps))
    if means is not None:
        means._elem, variances._elem = new_means, new_variances
    return env.j2t_iso(tuple(results))  # type: ignore[no-any-return]


def _without_statistics(
    x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    return _batch_norm(x, weight, bias, None, None, training, momentum, eps)


def _no_training(
    x: Tensor, weight: Any, bias: Any, means: Any, variances: Any, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    return _batch_norm(x, weight, bias, means, variances, False, momentum, eps)


@kernel
def _batch_norm_backward(
    gradient: Array, x: Array, weight: Any, means: Any, variances: Any, saved_mean: Any,
    saved_rstd: Any, training: bool, eps: float, mask: Any,
) -> Any:  # fmt: skip
    scale = jnp.ones(x.shape[1], x.dtype) if weight is None else weight

    def forward(x: Array, weight: Array, bias: Array) -> Array:
        mean, var = _statistics(x) if training else (means, variances)
        return _normalise(x, weight, bias, mean, var, eps)

    grads = pull_back(forward, (x, scale, jnp.zeros_like(scale)), gradient)
    return masked(grads, (mask[0], mask[1] and weight is not None, mask[2]))


def install(env: Environment) -> None:
    """Replace BatchNorm and its backward pass."""
    aten = torch.ops.aten
    register(env, aten.native_batch_norm, _batch_norm, of_arrays=False)
    register(env, aten._native_batch_norm_legit, _batch_norm, of_arrays=False)
    register(env, aten._native_batch_norm_legit.no_stats, _without_statistics, of_arrays=False)
    register(env, aten._native_batch_norm_legit_no_training, _no_training, of_arrays=False)
    register(env, aten.native_batch_norm_backward, _batch_norm_backward, of_arrays=True)
