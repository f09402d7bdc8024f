"""torch.optim on the device.

`foreach=True` works through decompositions.py. `fused=True` and `capturable=True` need CUDA kernels
and CUDA graphs: torchax 0.0.13 has neither and raises OperatorNotFound. The results are the same
without them, so a step drops them, with one warning.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torchax.tensor import Environment

from ..device import DEVICE_TYPE
from ..dispatch.calls import holds_device_tensor, is_device_tensor, patch


def _follow_parameters(optimizer: Optimizer) -> None:
    """Move state to its parameter's device: it may be older (Adagrad) or loaded before the move."""
    for parameter, state in optimizer.state.items():
        if not is_device_tensor(parameter):
            continue
        for name, value in state.items():
            if name != "step" and isinstance(value, torch.Tensor) and not is_device_tensor(value):
                state[name] = value.to(DEVICE_TYPE)


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for option in ("fused", "capturable"):
            if group.get(option) and holds_device_tensor(group["params"]):
                group[option] = False
                warnings.warn(
                    f"{type(optimizer).__name__}: {option}=True is for CUDA and is dropped",
                    stacklevel=2,
                )
    _follow_parameters(optimizer)


def _grouping(group: Callable[..., Any]) -> Callable[..., Any]:
    """Group tensors by device and dtype; C++ takes device tensors for meta tensors, and
    `clip_grad_norm_` would then move its factor to meta, where it has no value."""

    @functools.wraps(group)
    def by_device(tensors: Any, with_indices: bool = False) -> Any:
        groups = group(tensors, with_indices)
        if not holds_device_tensor(tensors):
            return groups
        here = torch.device(DEVICE_TYPE, 0)
        return {
            (here if device.type == "meta" else device, dtype): members
            for (device, dtype), members in groups.items()
        }

    return by_device


def install(env: Environment) -> None:
    """Check each optimizer before its step, and replace how tensors are grouped."""
    grouping = _grouping(torch._C._group_tensors_by_device_and_dtype)
    patch(torch._C, _group_tensors_by_device_and_dtype=grouping)
    register_optimizer_step_pre_hook(_before_step)
