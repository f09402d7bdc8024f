"""Accelerate, and what is built on it (Trainer, TRL): device, ranks, and bfloat16."""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from .amp import autocast
from .device import DEVICE_TYPE
from .distributed import DistributedDataParallel

NEEDED_BY = "accelerate transformers trl"


class _Autocast(torch.autocast):
    """`torch.autocast`, which leaves float32 on the device: there it is that of the runtime."""

    def __new__(cls, device_type: str, *args: Any, **kwargs: Any) -> Any:
        if device_type == DEVICE_TYPE:
            return autocast(device_type, *args, **kwargs)
        return torch.amp.autocast_mode.autocast(device_type, *args, **kwargs)


def _join_ranks() -> None:
    """Let accelerate make a group of the ranks that a launcher has started.

    accelerate 1.15 does so for accelerators that it knows, and for the CPU: so it is the CPU's,
    with another device and group. Without it each rank would train by itself.
    """
    state: Any = import_module("accelerate.state")
    stock = state.PartialState._prepare_backend
    several = state.DistributedType.MULTI_CPU

    def backend(self: Any, cpu: bool = False, *args: Any, **kwargs: Any) -> Any:
        if cpu:
            return stock(self, cpu, *args, **kwargs)
        return DEVICE_TYPE, several

    state.PartialState._prepare_backend = backend
    torch.nn.parallel.DistributedDataParallel = DistributedDataParallel  # type: ignore[misc]


def install(_env: Any) -> None:
    """Name the device, of which they know nothing; what the user has named stays.

    transformers 5.24 and accelerate 1.15 ask torch for GPUs that have bfloat16, and no other.
    """
    os.environ.setdefault("ACCELERATE_TORCH_DEVICE", DEVICE_TYPE)
    torch.autocast = torch.amp.autocast = _Autocast  # type: ignore[misc]
    if "LOCAL_RANK" in os.environ and find_spec("accelerate") is not None:
        _join_ranks()
    if "transformers" in sys.modules:
        arguments: Any = import_module("transformers.training_args")
        arguments.is_torch_bf16_gpu_available = lambda: True
