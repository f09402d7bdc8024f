"""Batch and instance normalization keep the running statistics that torch keeps.

torch_xla 2.9: `running_var` gets the batch's biased variance, a factor (n - 1) / n too small, n
being the number of values of a channel; bfloat16 input with float32 statistics fails to compile;
backward through the running statistics (a frozen layer, in eval mode) raises "The size of mean
should be compatible with feature count"; and `momentum=None` reads a counter back from the device,
and compiles a new program, each step.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .device import DEVICE_TYPE

_torch_batch_norm: Callable[..., Tensor] = F.batch_norm
_torch_instance_norm: Callable[..., Tensor] = F.instance_norm


@functools.cache
def _variance_is_biased() -> bool:
    """Whether torch_xla still has the fault. Asked once, at the first use: it runs the device."""
    mean, variance = torch.zeros(1, device=DEVICE_TYPE), torch.zeros(1, device=DEVICE_TYPE)
    values = torch.tensor([[0.0], [2.0]]).to(DEVICE_TYPE)
    with torch.no_grad(), torch.autocast(DEVICE_TYPE, enabled=False):
        _torch_batch_norm(values, mean, variance, training=True, momentum=1.0)
    return variance.item() < 1.5  # 1 if biased, else 2


def _normalize(
    function: Callable[..., Tensor],
    x: Tensor,
    running: tuple[Tensor, Tensor],
    affine: tuple[Tensor | None, Tensor | None],
    count: int,
    momentum: float | Tensor,
    eps: float,
) -> Tensor:
    """Normalize with the batch's own statistics, and update the ``running`` mean and variance.

    ``count``: how many values each variance is taken of.
    """
    # A momentum of 1 gives the batch's statistics themselves, and they cost nothing more.
    mean, variance = torch.zeros_like(running[0]), torch.zeros_like(running[1])
    result = function(x, mean, variance, *affine, True, 1.0, eps)
    if _variance_is_biased():
        variance = variance * (count / (count - 1)) if count > 1 else variance * float("nan")
    with torch.no_grad():
        for kept, new in zip(running, (mean, variance), strict=True):
            kept.mul_(1.0 - momentum).add_(new * momentum)
    return result


def _normalize_by_running(
    x: Tensor,
    running: tuple[Tensor, Tensor],
    affine: tuple[Tensor | None, Tensor | None],
    eps: float,
) -> Tensor:
    """The same as torch's in eval mode, in functions whose gradients work."""
    shape = (1, -1) + (1,) * (x.dim() - 2)
    weight, bias = affine
    scale = (running[1] + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    result = (x - running[0].reshape(shape)) * scale.reshape(shape)
    return result if bias is None else result + bias.reshape(shape)


def _in_the_dtype_of(parameters: tuple[Tensor | None, ...], x: Tensor) -> Tensor:
    """``x``, in float32 where it is of 16 bits and its statistics and weights are of 32."""
    kinds = {p.dtype for p in parameters if p is not None}
    return x.float() if x.dtype.itemsize == 2 and kinds == {torch.float32} else x


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
    arguments: tuple[Any, ...] = (running_mean, running_var, weight, bias)
    if input.device.type != DEVICE_TYPE:
        return _torch_batch_norm(input, *arguments, training, momentum, eps)
    x = _in_the_dtype_of(arguments, input)
    if running_mean is None or running_var is None:
        result = _torch_batch_norm(x, *arguments, training, momentum, eps)
    elif training:
        running, affine = (running_mean, running_var), (weight, bias)
        size = x.numel() // x.shape[1]
        result = _normalize(_torch_batch_norm, x, running, affine, size, momentum, eps)
    elif torch.is_grad_enabled():
        result = _normalize_by_running(x, (running_mean, running_var), (weight, bias), eps)
    else:
        result = _torch_batch_norm(x, *arguments, training, momentum, eps)
    return result.to(input.dtype)


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
    arguments: tuple[Any, ...] = (running_mean, running_var, weight, bias)
    if input.device.type != DEVICE_TYPE:
        return _torch_instance_norm(input, *arguments, use_input_stats, momentum, eps)
    x = _in_the_dtype_of(arguments, input)
    if running_mean is None or running_var is None:
        result = _torch_instance_norm(x, *arguments, use_input_stats, momentum, eps)
    elif use_input_stats:
        running, affine = (running_mean, running_var), (weight, bias)
        size = math.prod(x.shape[2:])
        result = _normalize(_torch_instance_norm, x, running, affine, size, momentum, eps)
    elif torch.is_grad_enabled():
        result = _normalize_by_running(x, (running_mean, running_var), (weight, bias), eps)
    else:
        result = _torch_instance_norm(x, *arguments, use_input_stats, momentum, eps)
    return result.to(input.dtype)


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
            or torch.distributed.is_initialized()  # SyncBatchNorm may have others to ask
        ):
            return torch_forward(self, input)  # type: ignore[no-any-return]
        self._check_input_dim(input)
        batches.add_(1)
        mean, variance = self.running_mean, self.running_var
        share = 1.0 / batches.to(variance.dtype)
        return batch_norm(input, mean, variance, self.weight, self.bias, True, share, self.eps)

    kind.forward = forward


def install() -> None:
    """Replace the functions, which the modules call, for tensors of the device."""
    F.batch_norm = batch_norm
    F.instance_norm = instance_norm
    _keep_the_average_on_the_device(nn.modules.batchnorm._BatchNorm)
    _keep_the_average_on_the_device(nn.SyncBatchNorm)
