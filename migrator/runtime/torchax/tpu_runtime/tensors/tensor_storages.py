"""Which memory a tensor's values are in: this is how saving finds shared weights.

torchax's tensors don't have torch's memory, and all return 0 as its address. So Trainer saves no
checkpoint ("shared tensors"), and accelerate leaves out all but one weight of each size.
"""

from typing import Any

import torch
from torchax.tensor import Tensor

from ..dispatch.calls import is_device_tensor


def root(tensor: torch.Tensor) -> Any:
    """The tensor that a tensor shares its memory with."""
    if not is_device_tensor(tensor):
        return "cpu", tensor.untyped_storage().data_ptr()
    while (link := tensor.__dict__.get("_link")) is not None:
        tensor = link.parent
    return id(tensor)


class _Storage:
    """torchax's storage, with an address of its own."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def data_ptr(self) -> int:
        return root(self._tensor)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.Tensor.untyped_storage(self._tensor), name)


def storage(tensor: Tensor) -> _Storage:
    """`tensor.untyped_storage()`"""
    return _Storage(tensor)


def place(tensor: Tensor) -> int:
    """`tensor.data_ptr()`, as for other tensors: the offset is added to the start of the memory."""
    offset = torch.Tensor.data_ptr(tensor)
    return root(tensor) + offset  # type: ignore[no-any-return]
