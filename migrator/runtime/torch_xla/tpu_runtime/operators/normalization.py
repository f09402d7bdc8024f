"""Batch, instance, layer and group normalization with torch's numbers, made of other operations.

torch_xla 2.9 computes a variance as E[x²] - E[x]², which float32 can't hold if a mean is larger
than the deviation: at a ratio of 100 results are off by 4e-2, at 1000 they are NaN; gradients are
off by up to 1e-4 at any ratio. And `running_var` gets the batch's biased variance, a factor
(n - 1) / n too small, n being the number of values of a channel; bfloat16 input with float32
statistics fails to compile; backward through the running statistics (a frozen layer, in eval mode)
raises "The size of mean should be compatible with feature count"; and `momentum=None` reads a
counter back from the device, and compiles a new program, each step.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import substitute

_torch_batch_norm: Callable[..., Tensor] = F.batch_norm
_torch_instance_norm: Callable[..., Tensor] = F.instance_norm
_torch_layer_norm: Callable[..., Tensor] = torch.layer_norm
_torch_group_norm: Callable[..., Tensor] = torch.group_norm

Pair = tuple[Tensor | None, Tensor | None]


def computed(x: Tensor) -> Tensor:
    """``x`` in the dtype of the computation."""
    return x.float() if x.dtype.itemsize == 2 else x


def _standardized(x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``x`` with mean 0 and variance 1 over ``dims``, and its previous mean and variance.

    The result doesn't depend on the value subtracted first, so that needs no gradient;
    without a large mean, one pass for the sums of values and squares is as good as two.
    """
    dims = tuple(dims)
    shift = x.detach().mean(dims, keepdim=True)
    x = x - shift
    mean = x.mean(dims, keepdim=True)
    variance = (x * x).mean(dims, keepdim=True) - mean * mean
    return (x - mean) * (variance + eps).rsqrt(), shift + mean, variance


def scaled(x: Tensor, affine: Pair, shape: Sequence[int]) -> Tensor:
    """``x`` times the weight, plus the bias, if given."""
    weight, bias = affine
    x = x if weight is None else x * weight.reshape(tuple(shape))
    return x if bias is None else x + bias.reshape(tuple(shape))


def follow(running: Pair, taken: tuple[Tensor, Tensor], momentum: float | Tensor) -> None:
    """Update the ``running`` mean and variance, if given, from those of a batch."""
    with torch.no_grad():
        for kept, new in zip(running, taken, strict=True):
            if kept is not None:
                kept.mul_(1.0 - momentum).add_((new * momentum).to(kept.dtype))


def _by_channel(
    x: Tensor, dims: Sequence[int] | None, running: Pair, affine: Pair, momentum: Any, eps: float
) -> Tensor:
    """Normalize by the statistics over ``dims``, which update the running ones; None: by these."""
    values, shape = computed(x), (1, -1) + (1,) * (x.dim() - 2)
    running_mean, running_var = running
    if dims is None:
        assert running_mean is not None and running_var is not None
        scale = (running_var + eps).rsqrt().reshape(shape)
        result = (values - running_mean.reshape(shape)) * scale
        return scaled(result, affine, shape).to(x.dtype)
    result, mean, variance = _standardized(values, dims, eps)
    if running_mean is not None and running_var is not None and x.numel():  # no batch, no update
        count = math.prod(x.shape[d] for d in dims)
        unbiased = variance * (count / (count - 1)) if count > 1 else variance * float("nan")
        # instance normalization has statistics for each sample
        mean, unbiased = (t.detach().transpose(0, 1).flatten(1).mean(1) for t in (mean, unbiased))
        follow(running, (mean, unbiased), momentum)
    return scaled(result, affine, shape).to(x.dtype)


@functools.wraps(_torch_batch_norm)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    running, affine = (running_mean, running_var), (weight, bias)
    if input.device.type == DEVICE_TYPE and input.shape == (0,):
        return input.clone()  # torch_xla 2.9 crashes
    if input.device.type != DEVICE_TYPE or input.dim() < 2:
        return _torch_batch_norm(input, *running, *affine, training, momentum, eps)
    if training:
        F._verify_batch_size(input.shape)  # type: ignore[attr-defined]
    dims = [0, *range(2, input.dim())] if training else None
    return _by_channel(input, dims, running, affine, momentum, eps)


@functools.wraps(_torch_instance_norm)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    running, affine = (running_mean, running_var), (weight, bias)
    if input.device.type != DEVICE_TYPE:
        return _torch_instance_norm(input, *running, *affine, use_input_stats, momentum, eps)
    if use_input_stats:
        F._verify_spatial_size(input.shape)  # type: ignore[attr-defined]
    dims = range(2, input.dim()) if use_input_stats else None
    return _by_channel(input, dims, running, affine, momentum, eps)


def _dtype_of_sums(input: Tensor, weight: Tensor | None) -> torch.dtype:
    """float32 under autocast, as on GPUs."""
    if torch.is_autocast_enabled(DEVICE_TYPE) and input.dtype != torch.float64:
        return torch.float32
    return input.dtype if weight is None else torch.promote_types(input.dtype, weight.dtype)


@functools.wraps(_torch_layer_norm)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    shape = tuple(normalized_shape)
    # invalid arguments get torch's own message
    if input.device.type != DEVICE_TYPE or not shape or input.shape[-len(shape) :] != shape:
        return _torch_layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable)
    dims = range(input.dim() - len(shape), input.dim())
    result, _, _ = _standardized(computed(input), dims, eps)
    return scaled(result, (weight, bias), shape).to(_dtype_of_sums(input, weight))


@functools.wraps(_torch_group_norm)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    if input.device.type != DEVICE_TYPE or input.dim() < 2 or input.shape[1] % num_groups:
        return _torch_group_norm(input, num_groups, weight, bias, eps, cudnn_enabled)
    size = math.prod(input.shape[1:]) // num_groups
    groups = computed(input).reshape(input.shape[0], num_groups, size)
    result = _standardized(groups, (2,), eps)[0].reshape(input.shape)
    shape = (1, -1) + (1,) * (input.dim() - 2)
    return scaled(result, (weight, bias), shape).to(_dtype_of_sums(input, weight))


def _keep_the_average_on_the_device(kind: Any) -> None:
    """Let modules of ``kind`` with `momentum=None` keep their cumulative average on the device."""
    torch_forward = kind.forward

    @functools.wraps(torch_forward)
    def forward(self: Any, input: Tensor) -> Tensor:
        batches = self.num_batches_tracked
        if (
            self.momentum is not None
            or not (self.training and self.track_running_stats)
            or batches is None
            or input.device.type != DEVICE_TYPE
            or torch.distributed.is_initialized()  # SyncBatchNorm may need other ranks
        ):
            return torch_forward(self, input)  # type: ignore[no-any-return]
        self._check_input_dim(input)
        batches.add_(1)
        mean, variance = self.running_mean, self.running_var
        share = 1.0 / batches.to(variance.dtype)
        return batch_norm(input, mean, variance, self.weight, self.bias, True, share, self.eps)

    kind.forward = forward


def install() -> None:
    """Replace the functions that the modules call, for device tensors."""
    F.batch_norm = batch_norm
    F.instance_norm = instance_norm
    substitute(torch, "layer_norm", layer_norm)  # called by F.layer_norm
    substitute(torch, "group_norm", group_norm)
    _keep_the_average_on_the_device(nn.modules.batchnorm._BatchNorm)
    _keep_the_average_on_the_device(nn.SyncBatchNorm)
