"""`torch.get_device_module(device)`: what programs for any accelerator call of a device's module.

torch_tpu 0.2 lets PyTorch alone call some functions of `torch.tpu`, and raises an error for others;
those about memory it has in `torch.accelerator` alone. Training frameworks use both.
"""

from typing import Any

import torch

from ..device import is_loaded

_FOR_TORCH_ALONE = (
    "current_device", "current_stream", "device_count", "set_device", "set_stream", "synchronize",
)  # fmt: skip
_OF_ACCELERATOR = (
    "empty_cache", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
)  # fmt: skip


def install() -> None:
    if not is_loaded():
        return
    module: Any = torch.tpu  # type: ignore[attr-defined]
    for name in _FOR_TORCH_ALONE:
        method = getattr(module, name)
        function = getattr(method, "__func__", method)
        own = getattr(function, "__wrapped__", None)  # without the question who calls
        if own is not None and hasattr(method, "__self__"):
            setattr(module, name, own.__get__(method.__self__))
    for name in _OF_ACCELERATOR:
        if not hasattr(module, name) and hasattr(torch.accelerator, name):
            setattr(module, name, getattr(torch.accelerator, name))
    if not hasattr(module, "mem_get_info") and hasattr(torch.accelerator, "get_memory_info"):
        module.mem_get_info = torch.accelerator.get_memory_info
