"""SyncBatchNorm: statistics over the batches of all ranks.

torch 2.9: `nn.SyncBatchNorm` only accepts tensors on GPUs.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torchax.tensor import Environment

from ..dispatch.calls import is_device_tensor, patch


class _Sum(torch.autograd.Function):
    """The sum over all ranks; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = values.clone()
        torch.distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Sum.forward(ctx, gradients[0], ctx.group), None


def _normalize(norm: nn.SyncBatchNorm, x: Tensor, momentum: float) -> Tensor:
    """``x`` normalised by the statistics of all ranks' batches, which update the running ones."""
    others = [d for d in range(x.dim()) if d != 1]
    shape = [-1 if d == 1 else 1 for d in range(x.dim())]
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    number = values.new_full((1,), x.numel() // x.shape[1])
    group = norm.process_group
    sums = _Sum.apply(torch.cat([values.sum(others), number]), group)
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centred = values - mean.reshape(shape)
    squares = centred.square().sum(others)
    variance = _Sum.apply(squares, group) / count
    result = centred * (variance + norm.eps).rsqrt().reshape(shape)
    with torch.no_grad():
        if norm.running_mean is not None and norm.running_var is not None:
            unbiased = variance * (count / (count - 1))
            norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
            norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), momentum)
    if norm.affine:
        result = result * norm.weight.reshape(shape) + norm.bias.reshape(shape)
    made: torch.Tensor = result.to(x.dtype)
    return made


def install(env: Environment) -> None:
    """Let the module exchange its sums."""
    stock = nn.SyncBatchNorm.forward

    @functools.wraps(stock)
    def forward(self: nn.SyncBatchNorm, input: Tensor) -> Tensor:
        distributed = torch.distributed
        if not is_device_tensor(input):
            return stock(self, input)
        if (
            not self.training
            or not distributed.is_initialized()
            or distributed.get_world_size(self.process_group) == 1
        ):
            return nn.modules.batchnorm._BatchNorm.forward(self, input)
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        momentum = self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        return _normalize(self, input, 0.0 if momentum is None else momentum)

    patch(nn.SyncBatchNorm, forward=forward)
