"""Scatter operators that torch_xla 2.9 refuses, for operators.py."""

from typing import Any

import torch
from torch import Tensor

from .kernels import Kernel, stock


def scatter(name: str) -> Kernel:
    """An index may be longer than what is written to, along ``dim``; stock raises."""
    write = stock(name)

    def kernel(self: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        length = self.shape[dim] if self.dim() and index.dim() else index.numel()
        if index.numel() == 0 or index.dim() == 0 or index.shape[dim] <= length:
            return write(self, dim, index, *args, **kwargs)  # type: ignore[no-any-return]
        shape = [*self.shape]
        shape[dim] = index.shape[dim] - length
        longer = torch.cat([self, self.new_zeros(shape)], dim)
        return write(longer, dim, index, *args, **kwargs).narrow(dim, 0, length).clone()  # type: ignore[no-any-return]

    return kernel


def masked_scatter(name: str) -> Kernel:
    """Of more values than there are places; stock raises."""
    write = stock(name)

    def kernel(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
        count = torch.broadcast_shapes(self.shape, mask.shape).numel()
        return write(self, mask, source.reshape(-1)[:count])  # type: ignore[no-any-return]

    return kernel
