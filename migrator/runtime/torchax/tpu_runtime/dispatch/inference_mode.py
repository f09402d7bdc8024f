"""Data loaders and inference mode, which fail with torchax's tensors."""

from typing import Any

import torch
from torch.utils.data import DataLoader
from torchax.tensor import Environment

from .calls import patch


class inference_mode(torch.no_grad):
    """`torch.inference_mode` as `no_grad`.

    torchax 0.0.13 doesn't work in inference mode: operators arrive in another form and raise.
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


def install(env: Environment) -> None:
    """Replace inference mode, and never pin memory.

    Pinning raises, because there is no CUDA; it only makes copies to a GPU faster.
    """
    patch(torch, inference_mode=inference_mode)
    patch(DataLoader, pin_memory=property(lambda self: False, lambda self, value: None))
