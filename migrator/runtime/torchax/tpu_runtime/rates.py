"""Learning rates and step counts that are tensors, in a compiled step.

An optimizer computes with them as with numbers: torch asks them for their values.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torchax.tensor import Environment, Tensor

from . import pointwise
from .calls import Function, is_device_tensor, replaces


def of_groups(groups: list[dict[str, Any]]) -> list[Any]:
    """The learning rates as numbers of the program; None for one that is a tensor already."""
    kind = _precise()
    return [None if isinstance(g["lr"], torch.Tensor) else kind.type(g["lr"]) for g in groups]


def _precise() -> Any:
    """The dtype of rates: float32, or float64 where JAX has it (JAX_ENABLE_X64)."""
    return np.dtype(np.float64 if jax.config.jax_enable_x64 else np.float32)


def _is_rate(value: object) -> bool:
    return is_device_tensor(value) and value.dim() == 0  # type: ignore[attr-defined]


@replaces(torch.Tensor.add_, torch.Tensor.add, torch.add, torch.Tensor.sub_, torch.Tensor.sub)
def _with_alpha(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """`p.add_(d, alpha=-lr)`: torch wants `alpha` as a number, and asks the tensor for it."""
    alpha, result = kwargs.get("alpha"), pointwise.of_step(env, function, args, kwargs)
    if result is not NotImplemented or not _is_rate(alpha):
        return result
    return function(args[0], args[1] * alpha)


@replaces(torch.Tensor.addcdiv_, torch.Tensor.addcdiv, torch.Tensor.addcmul_, torch.Tensor.addcmul)
def _with_value(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """The same for `value`; the order of the operations is torch's."""
    value, result = kwargs.get("value"), pointwise.of_step(env, function, args, kwargs)
    if result is not NotImplemented or not _is_rate(value):
        return result
    one, other = args[1] * value, args[2]
    added = one / other if function.__name__.startswith("addcdiv") else one * other
    in_place = function.__name__.endswith("_")
    return args[0].add_(added) if in_place else args[0] + added


@replaces(torch.Tensor.__rpow__)
def _power(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """`beta ** step`, whose complement is wanted: 1 - 0.999 ** 1 has 4 right digits in float32."""
    exponent, base = args
    if not _is_rate(exponent) or not isinstance(base, float) or not 0 < base < 1:
        return NotImplemented
    kind = _precise()
    logarithm = exponent.jax().astype(kind) * kind.type(math.log(base))
    result = Tensor(jnp.exp(logarithm), env)
    result.__dict__["_log"] = logarithm
    return result


@replaces(torch.Tensor.__rsub__)
def _complement(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    tensor, number = args
    logarithm = tensor.__dict__.get("_log") if is_device_tensor(tensor) else None
    if logarithm is None or number != 1:
        return NotImplemented
    return Tensor(-jnp.expm1(logarithm), env)
