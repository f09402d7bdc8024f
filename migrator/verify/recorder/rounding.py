"""Rounds a program otherwise, to see what rounding does to it.

What a layer computes, the gradient that comes back to it, and the gradients of parameters are sums:
in another order they differ by about one unit in the last place, not of what is left where terms
cancel, but of what such sums usually are. So each element is moved, up or down by chance, by one
unit of its own magnitude or of the root mean square of the tensor, whichever is larger. What is 0
stays 0: it was not used, or cut off.
"""

from __future__ import annotations

from typing import Any

import torch
from tf32 import EPS, in_tf32
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

CONVOLUTIONS = (nn.modules.conv._ConvNd, nn.RNNBase)  # what cuDNN computes
_PRODUCTS = (*CONVOLUTIONS, nn.Linear, nn.Bilinear, nn.MultiheadAttention)


def round_otherwise(number: int) -> None:
    """Round what this process computes; `number` chooses the signs."""
    generator = torch._C.Generator().manual_seed(number)

    def off(tensor: torch.Tensor, eps: float) -> torch.Tensor:
        with torch.no_grad(), torch._C.DisableTorchFunction():  # this is none of the program's
            signs = torch.empty(tensor.shape).bernoulli_(0.5, generator=generator) * 2 - 1
            size = tensor.abs()
            typical = torch.linalg.vector_norm(size.float()) / max(tensor.numel(), 1) ** 0.5
            size = torch.where(tensor == 0, 0, size.clamp(min=typical.to(size.dtype)))
            return tensor + (signs.to(tensor.device) * eps).to(tensor.dtype) * size

    class Off(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: torch.Tensor, eps: float) -> torch.Tensor:
            ctx.eps = eps
            return off(tensor, eps)

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            return off(gradients[0], ctx.eps), None

    called = nn.Module.__call__

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        output = called(self, *args, **kwargs)
        # attention has a child, but computes all by itself
        is_layer = isinstance(self, nn.MultiheadAttention) or next(self.children(), None) is None
        return moved(output, self) if is_layer else output

    def moved(output: Any, module: nn.Module) -> Any:
        if type(output) is tuple:  # of recurrent layers
            return tuple(moved(part, module) for part in output)
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            return Off.apply(output, _unit(output, module))
        return output

    def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            gradient = parameter.grad
            if gradient is not None and not gradient.is_sparse:
                gradient.copy_(off(gradient, _unit(gradient, None)))

    register_optimizer_step_pre_hook(torch.no_grad()(before_step))
    nn.Module.__call__ = call  # type: ignore[method-assign]


def _unit(tensor: torch.Tensor, module: nn.Module | None) -> float:
    """One in the last place of the coarser one of both back ends."""
    if tensor.dtype == torch.float16:  # bfloat16 on a TPU
        return torch.finfo(torch.bfloat16).eps
    if tensor.dtype == torch.float32 and isinstance(module, _PRODUCTS):
        return EPS if in_tf32(isinstance(module, CONVOLUTIONS)) else 2.0**-23
    return torch.finfo(tensor.dtype).eps
