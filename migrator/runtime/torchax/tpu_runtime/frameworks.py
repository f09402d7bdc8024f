"""Accelerate, and what is built on it (Trainer, TRL): the device, and bfloat16 on it."""

import os
import sys
from importlib import import_module
from typing import Any

import torch

from .amp import autocast
from .device import DEVICE_TYPE

NEEDED_BY = "accelerate transformers trl"


class _Autocast(torch.autocast):
    """`torch.autocast`, which leaves float32 on the device: there it is that of the runtime."""

    def __new__(cls, device_type: str, *args: Any, **kwargs: Any) -> Any:
        if device_type == DEVICE_TYPE:
            return autocast(device_type, *args, **kwargs)
        return torch.amp.autocast_mode.autocast(device_type, *args, **kwargs)


def install(_env: Any) -> None:
    """Name the device, of which they know nothing; what the user has named stays.

    transformers 5.24 and accelerate 1.15 ask torch for GPUs that have bfloat16, and no other.
    """
    os.environ.setdefault("ACCELERATE_TORCH_DEVICE", DEVICE_TYPE)
    torch.autocast = torch.amp.autocast = _Autocast  # type: ignore[misc]
    if "transformers" in sys.modules:
        arguments: Any = import_module("transformers.training_args")
        arguments.is_torch_bf16_gpu_available = lambda: True
