"""Backward passes that torchax lacks, as the transpose (jax.vjp) of the forward operator.

torchax 0.0.13 has none for convolution, upsampling, grid_sample, replication padding, shrinking,
masked_scatter and weight_norm: `loss.backward()` raises OperatorNotFound. That of the negative log
likelihood, and so of cross entropy, is written anew, without a scatter. BatchNorm's is in
batch_norm.py, those of pools are in pooling.py.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax import interop
from torchax.tensor import Environment

from ..dispatch.calls import Function, register
from ..dispatch.jax_kernels import Array, kernel, masked, pull_back
from .grouped_transposed_convolutions import convolution


def _register_missing(env: Environment, operator: Any, function: Function) -> None:
    """Add a function of arrays, unless this torchax already has the operator."""
    known = {operator, *(getattr(operator, overload) for overload in operator.overloads())}
    if not any(form in env._ops or form in env._decomps for form in known):
        register(env, operator, function, of_arrays=True)


@kernel
def _convolution_backward(
    gradient: Array, x: Array, weight: Array, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, mask: Any,
) -> Any:  # fmt: skip
    def forward(x: Array, weight: Array) -> Array:
        return convolution(
            x, weight, None, stride, padding, dilation, transposed, output_padding, groups
        )

    grad_x, grad_weight = pull_back(forward, (x, weight), gradient)
    channel = gradient.ndim - weight.ndim + 1  # without a batch it is the first dimension
    others = tuple(axis for axis in range(gradient.ndim) if axis != channel)
    return masked((grad_x, grad_weight, gradient.sum(others)), mask)


def _of_torch(env: Environment, operator: Any) -> Callable[..., Array]:
    """A torch operator as a function of JAX arrays."""

    def call(*arrays: Array) -> Array:
        with torch.no_grad(), env._dispatch_mode:
            return interop.jax_view(operator(*interop.torch_view(arrays)))

    return call


def _upsample_backward(env: Environment, name: str) -> Callable[..., Array]:
    operator = getattr(torch.ops.aten, name)

    @kernel
    def backward(
        gradient: Array, output_size: Sequence[int], input_size: Sequence[int], *rest: Any
    ) -> Array:
        def forward(x: Array) -> Array:
            return _of_torch(env, lambda x: operator(x, list(output_size), *rest))(x)

        return pull_back(forward, (jnp.zeros(input_size, gradient.dtype),), gradient)[0]

    return backward


def _grid_sampler_backward(env: Environment, name: str) -> Callable[..., Any]:
    operator = getattr(torch.ops.aten, name)

    @kernel
    def backward(
        gradient: Array, x: Array, grid: Array, mode: int, padding: int, align_corners: bool,
        mask: Any,
    ) -> Any:  # fmt: skip
        forward = _of_torch(env, lambda x, grid: operator(x, grid, mode, padding, align_corners))
        return masked(pull_back(forward, (x, grid), gradient), mask)

    return backward


@kernel
def _replication_pad_backward(gradient: Array, x: Array, padding: Sequence[int]) -> Array:
    axes = len(padding) // 2
    pairs = [(padding[2 * n], padding[2 * n + 1]) for n in reversed(range(axes))]
    widths = [(0, 0)] * (x.ndim - axes) + [(max(low, 0), max(high, 0)) for low, high in pairs]
    kept = tuple(slice(max(-low, 0), min(high, 0) or None) for low, high in pairs)
    return pull_back(lambda x: jnp.pad(x, widths, mode="edge")[(..., *kept)], (x,), gradient)[0]


@kernel
def _shrink_backward(gradient: Array, x: Array, bound: float) -> Array:
    return jnp.where((x >= -bound) & (x <= bound), 0, gradient)


@kernel
def _masked_scatter_backward(gradient: Array, mask: Array, sizes: Sequence[int]) -> Array:
    chosen = jnp.broadcast_to(mask, gradient.shape).reshape(-1)
    size = math.prod(sizes)
    places = jnp.where(chosen, jnp.cumsum(chosen) - 1, size)
    source = jnp.zeros(size, gradient.dtype)
    return source.at[places].add(gradient.reshape(-1), mode="drop").reshape(sizes)


@kernel
def _weight_norm_backward(
    gradient: Array, direction: Array, length: Array, norms: Array, dim: int
) -> Any:
    def forward(direction: Array, length: Array) -> Array:
        axes = tuple(n for n in range(direction.ndim) if n != dim % direction.ndim)
        return direction * (length / jnp.sqrt(jnp.sum(direction**2, axes, keepdims=True)))

    return pull_back(forward, (direction, length), gradient)


@kernel
def _layer_norm_backward(
    gradient: Array, x: Array, shape: Any, mean: Array, rstd: Array, weight: Any, bias: Any,
    mask: Any,
) -> Any:  # fmt: skip
    """torchax 0.0.13 calls a function that doesn't exist in JAX."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    outer = tuple(range(x.ndim - len(shape)))
    g, rstd = gradient.astype(wide), rstd.astype(wide)
    normal = (x.astype(wide) - mean.astype(wide)) * rstd
    scaled = g if weight is None else g * weight.astype(wide)
    along = jnp.mean(scaled, axes, keepdims=True)
    across = jnp.mean(scaled * normal, axes, keepdims=True)
    grads = ((scaled - along - normal * across) * rstd).astype(x.dtype), None, None
    if weight is not None:
        grads = grads[0], (g * normal).sum(outer).astype(weight.dtype), grads[2]
    if bias is not None:
        grads = *grads[:2], g.sum(outer).astype(bias.dtype)
    return masked(grads, mask)


_UPSAMPLES = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
"""


_MEAN = 1  # of torch's numbers for reductions


@kernel
def _nll_loss_backward(
    gradient: Array, x: Array, target: Array, weight: Array | None, reduction: int, ignored: int,
    total: Array,
) -> Array:  # fmt: skip
    """By comparing classes: a scatter, as torch decomposes it, writes one element after another.

    As on GPUs, what is not the target's is 0 also where the gradient is infinite.
    """
    classes = min(1, x.ndim - 1)  # the dimension
    if reduction == _MEAN:
        gradient = gradient / total
    if x.ndim > gradient.ndim > 0:
        gradient = jnp.expand_dims(gradient, classes)
    if weight is not None:
        shape = [-1 if axis == classes else 1 for axis in range(x.ndim)]
        gradient = gradient * weight.reshape(shape)
    target = jnp.expand_dims(target, classes)
    is_target = jax.lax.broadcasted_iota(target.dtype, x.shape, classes) == target
    return jnp.where(is_target & (target != ignored), -gradient, 0).astype(x.dtype)


def install(env: Environment) -> None:
    """Add the backward passes."""
    aten = torch.ops.aten
    for loss in (aten.nll_loss_backward, aten.nll_loss2d_backward):
        register(env, loss, _nll_loss_backward, of_arrays=True)
    _register_missing(env, aten.convolution_backward, _convolution_backward)
    register(env, aten.native_layer_norm_backward, _layer_norm_backward, of_arrays=True)
    for name in _UPSAMPLES.split():
        backward = getattr(aten, f"{name}_backward")
        _register_missing(env, backward, _upsample_backward(env, name))
    for name in ("grid_sampler_2d", "grid_sampler_3d"):
        backward = getattr(aten, f"{name}_backward")
        _register_missing(env, backward, _grid_sampler_backward(env, name))
    for dims in (1, 2, 3):
        backward = getattr(aten, f"replication_pad{dims}d_backward")
        _register_missing(env, backward, _replication_pad_backward)
    for name, function in (
        ("softshrink_backward", _shrink_backward),
        ("hardshrink_backward", _shrink_backward),
        ("masked_scatter_backward", _masked_scatter_backward),
        ("_weight_norm_interface_backward", _weight_norm_backward),
    ):
        _register_missing(env, getattr(aten, name), function)
