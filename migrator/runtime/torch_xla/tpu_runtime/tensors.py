"""Tensor methods and modes that torch_xla gets wrong."""

import functools
from typing import Any

import torch

from .device import DEVICE_TYPE


class inference_mode(torch.no_grad):
    """`torch.inference_mode` as `no_grad`.

    torch_xla 2.9: linear, matmul, `.t()` and `.view` raise "Cannot set version_counter for
    inference tensor".
    """

    def __new__(cls, mode: Any = True) -> Any:
        return object.__new__(cls) if not callable(mode) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def __enter__(self) -> None:
        self.prev = torch.is_grad_enabled()
        if self.mode:
            torch.set_grad_enabled(False)

    def clone(self) -> "inference_mode":
        return type(self)(self.mode)


def install() -> None:
    """Replace what is wrong, for tensors of the device only."""
    torch.inference_mode = inference_mode  # type: ignore[assignment,misc]
    copy_, pin_memory = torch.Tensor.copy_, torch.Tensor.pin_memory

    @functools.wraps(copy_)
    def copy_broadcast(
        self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
    ) -> torch.Tensor:
        # torch_xla 2.9: `device.copy_(cpu)` gives the destination the source's shape, silently.
        if self.device.type == DEVICE_TYPE and self.shape != source.shape:
            source = source.expand(self.shape)
        return copy_(self, source, non_blocking)

    @functools.wraps(pin_memory)
    def pin_nothing(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        # Pinning raises without CUDA; it only makes copies to a GPU faster.
        return self

    torch.Tensor.copy_ = copy_broadcast  # type: ignore[assignment,method-assign]
    torch.Tensor.pin_memory = pin_nothing  # type: ignore[assignment,method-assign]
