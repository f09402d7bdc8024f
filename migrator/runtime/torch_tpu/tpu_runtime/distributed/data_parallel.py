"""nn.DataParallel on a TPU: a process computes on one, whichever devices it names.

Torch's own moves the inputs by streams of CUDA.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..device import accelerator, is_loaded

_ONE = "_computes_on_one_tpu"


def install() -> None:
    original = nn.DataParallel.__init__
    if is_loaded() and not hasattr(original, _ONE):
        nn.DataParallel.__init__ = _on_one(original)  # type: ignore[method-assign]
        nn.DataParallel.scatter = _to_one(nn.DataParallel.scatter)  # type: ignore[method-assign]


def _on_one(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(
        self: nn.DataParallel[Any],
        module: nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        if accelerator().type == "tpu":
            device_ids, output_device = [torch.accelerator.current_device_index()], None
        original(self, module, device_ids, output_device, dim)

    setattr(init, _ONE, True)
    return init


def _to_one(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scatter(self: nn.DataParallel[Any], inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        device = self.src_device_obj
        if device.type != "tpu":
            return original(self, inputs, kwargs, device_ids)
        return (_moved(inputs, device),), (_moved(kwargs or {}, device),)

    return scatter


def _moved(value: Any, device: torch.device) -> Any:
    """Arguments with their tensors on a device, also in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(each, device) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(_moved(each, device) for each in value)
    if isinstance(value, dict):
        return type(value)((key, _moved(each, device)) for key, each in value.items())
    return value
