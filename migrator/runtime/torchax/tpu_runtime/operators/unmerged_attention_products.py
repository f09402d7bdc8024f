"""Products of attention that keep batch and heads apart, which torch merges into one dimension.

If heads are divided over the devices, XLA can't divide the merged one: it would gather them, and
each device would compute all of attention. If keys and values come from a cache, it would copy the
cache for it on a CPU.
"""

from typing import Any

import jax.numpy as jnp
import torch
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import Function, is_device_tensor, needs_gradient, replaces
from ..distributed import mesh
from ..lazy import lazy_graph
from ..tensors.views import peek
from ..training import amp


def _matmul(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    if len(args) != 2 or kwargs or (needs_gradient(args) and not mesh.divides(mesh.MODEL)):
        return NotImplemented
    if not all(is_device_tensor(x) and x.dim() > 3 for x in args):
        return NotImplemented
    if env.param.autocast_dtype is not None:
        args, _ = amp.cast_arguments(env, function, args, kwargs)
    left, right = args
    if left.shape[:-2] != right.shape[:-2] or left.dtype != right.dtype:
        return NotImplemented
    return _product(left, right)


def _product(left: Any, right: Any) -> torch.Tensor:
    if needs_gradient((left, right)):
        return _Product.apply(left, right)  # type: ignore[no-any-return]
    made = lazy_graph.call("matmul", jnp.matmul, peek(left), peek(right))
    return Tensor(made, left._env)


class _Product(torch.autograd.Function):
    """The product with a gradient."""

    @staticmethod
    def forward(ctx: Any, left: Any, right: Any) -> torch.Tensor:
        ctx.save_for_backward(left, right)
        return _product(left, right)  # nothing in here requires a gradient

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = ctx.saved_tensors
        of_left = _product(gradient, right.transpose(-1, -2))
        return of_left, _product(left.transpose(-1, -2), gradient)


def install(env: Environment) -> None:
    """Keep batch and heads apart in products."""
    replaces(torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)(_matmul)
