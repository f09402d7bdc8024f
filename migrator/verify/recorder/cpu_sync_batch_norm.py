"""The CPU in the place of several GPUs: SyncBatchNorm, which torch has for GPUs alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

used: set[str] = set()  # what has been computed so


def patch() -> None:
    """Statistics over the batches of all ranks, exchanged by gloo."""
    nn.SyncBatchNorm.forward = _forward  # type: ignore[method-assign]
    DistributedDataParallel._passing_sync_batchnorm_handle = lambda *_: None


def _forward(norm: Any, x: Tensor) -> Tensor:
    alone = not dist.is_initialized() or dist.get_world_size(norm.process_group) == 1
    if alone or not norm.training:
        return _BatchNorm.forward(norm, x)
    used.add("SyncBatchNorm")
    here, shape = [d for d in range(x.dim()) if d != 1], (-1, *[1] * (x.dim() - 2))
    wide = x.double() if x.dtype == torch.float64 else x.float()
    counts = torch.full_like(wide.sum(here), x.numel() / x.shape[1])
    total, count = _sum(norm, torch.stack([wide.sum(here), counts]))
    away = wide - (total / count).view(shape)
    variance = _sum(norm, away.square().sum(here)) / count
    if norm.running_mean is not None:
        _follow(norm, total / count, variance * count / (count - 1))
    result = away / (variance + norm.eps).sqrt().view(shape)
    if norm.affine:
        weight, bias = (p.view(shape) for p in (norm.weight, norm.bias))
        result = result * weight + bias
    return result.to(x.dtype)


@torch.no_grad()
def _follow(norm: Any, mean: Tensor, variance: Tensor) -> None:
    norm.num_batches_tracked.add_(1)
    momentum = norm.momentum
    if momentum is None:
        momentum = 1 / float(norm.num_batches_tracked)
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
    norm.running_var.lerp_(variance.to(norm.running_var.dtype), momentum)


def _sum(norm: Any, values: Tensor) -> Tensor:
    """Over the ranks, with the sum of gradients as its gradient."""
    from torch.distributed.nn.functional import all_reduce

    found: Tensor = all_reduce(values, group=norm.process_group)
    return found
