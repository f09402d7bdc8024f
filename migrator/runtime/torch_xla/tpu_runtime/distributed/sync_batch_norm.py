"""SyncBatchNorm: statistics over the batches of all ranks.

torch 2.9: `nn.SyncBatchNorm` refuses XLA tensors. Each exchange is a separate program
(collectives.py), two in a forward and two in a backward pass of each layer.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn

from ..device import DEVICE_TYPE
from ..operators.normalization import computed, follow, scaled


class _Sum(torch.autograd.Function):
    """The sum over the ranks of a group; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = values.clone()
        torch.distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Sum.forward(ctx, gradients[0], ctx.group), None


def _normalize(norm: Any, x: Tensor, momentum: float | Tensor) -> Tensor:
    """``x`` normalised by the statistics of all ranks' batches, which update the running ones."""
    others = [d for d in range(x.dim()) if d != 1]
    shape = [-1 if d == 1 else 1 for d in range(x.dim())]
    values = computed(x)
    number = values.new_full((1,), x.numel() // x.shape[1])
    sums = _Sum.apply(torch.cat([values.sum(others), number]), norm.process_group)
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centred = values - mean.reshape(shape)
    variance = _Sum.apply(centred.square().sum(others), norm.process_group) / count
    result = centred * (variance + norm.eps).rsqrt().reshape(shape)
    unbiased = variance.detach() * (count / (count - 1))
    follow((norm.running_mean, norm.running_var), (mean.detach(), unbiased), momentum)
    return scaled(result, (norm.weight, norm.bias), shape).to(x.dtype)


def install() -> None:
    """Let the module exchange its sums."""
    torch_forward = nn.SyncBatchNorm.forward

    @functools.wraps(torch_forward)
    def forward(self: Any, input: Tensor) -> Tensor:
        distributed = torch.distributed
        if input.device.type != DEVICE_TYPE or not distributed.is_initialized():
            return torch_forward(self, input)
        if not self.training or distributed.get_world_size(self.process_group) == 1:
            return nn.modules.batchnorm._BatchNorm.forward(self, input)
        self._check_input_dim(input)
        momentum = self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / self.num_batches_tracked.to(torch.float32)
        return _normalize(self, input, 0.0 if momentum is None else momentum)

    nn.SyncBatchNorm.forward = forward  # type: ignore[method-assign]
