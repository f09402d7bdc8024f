"""Running statistics of BatchNorm and InstanceNorm: torch_tpu 0.2.0 never changes them.

Its kernels only compute the batch's own statistics, as the compiled program shows. A model
trains as it does elsewhere, but in evaluation it would normalise by the initial zeros and
ones. Here they are computed beside the kernel, which doesn't receive them: so a kernel
that does update them can't update them twice.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

_Tensor = torch.Tensor


def install() -> None:
    F.batch_norm = _batch_norm(F.batch_norm)
    F.instance_norm = _instance_norm(F.instance_norm)


def _batch_norm(original: Any) -> Any:
    @functools.wraps(original)
    def batch_norm(
        input: _Tensor,
        running_mean: _Tensor | None,
        running_var: _Tensor | None,
        weight: _Tensor | None = None,
        bias: _Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> _Tensor:
        if not training or not _are_on_tpu(input, running_mean, running_var):
            return original(input, running_mean, running_var, weight, bias, training, momentum, eps)  # type: ignore[no-any-return]
        result = original(input, None, None, weight, bias, True, momentum, eps)
        others = [place for place in range(input.dim()) if place != 1]
        _update(input, running_mean, running_var, others, momentum)
        return result  # type: ignore[no-any-return]

    return batch_norm


def _instance_norm(original: Any) -> Any:
    @functools.wraps(original)
    def instance_norm(
        input: _Tensor,
        running_mean: _Tensor | None = None,
        running_var: _Tensor | None = None,
        weight: _Tensor | None = None,
        bias: _Tensor | None = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> _Tensor:
        if not use_input_stats or not _are_on_tpu(input, running_mean, running_var):
            return original(  # type: ignore[no-any-return]
                input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
            )
        result = original(input, None, None, weight, bias, True, momentum, eps)
        _update(input, running_mean, running_var, range(2, input.dim()), momentum)
        return result  # type: ignore[no-any-return]

    return instance_norm


def _are_on_tpu(input: _Tensor, mean: _Tensor | None, var: _Tensor | None) -> bool:
    return input.device.type == "tpu" and mean is not None and var is not None


def _update(input: _Tensor, mean: Any, var: Any, over: Sequence[int], momentum: float) -> None:
    """Move both towards those of a batch; of several instances, towards their average."""
    with torch.no_grad():
        values = input.detach().to(torch.promote_types(input.dtype, mean.dtype))
        batch_var, batch_mean = torch.var_mean(values, list(over), correction=1)
        if batch_mean.dim() > 1:
            batch_mean, batch_var = batch_mean.mean(0), batch_var.mean(0)
        mean.copy_(momentum * batch_mean + (1 - momentum) * mean)
        var.copy_(momentum * batch_var + (1 - momentum) * var)
