"""`torch.inference_mode` as `no_grad`, for targets whose tensors don't work in inference mode.

torchax 0.0.13: operators arrive in another form and raise. torch_xla 2.9: linear, matmul, `.t()`
and `.view` raise "Cannot set version_counter for inference tensor".
"""

from typing import Any

import torch


class inference_mode(torch.no_grad):
    """As a context or a decorator; ``mode``: whether gradients are off."""

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
