"""Operators that write by index: torch_xla 2.9 refuses them or reads values back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..dispatch.replaced_kernels import Kernel, stock


def scatter(name: str) -> Kernel:
    """An index may be longer than the destination, along ``dim``; stock raises."""
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
    """More values than places; stock raises."""
    write = stock(name)

    def kernel(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
        count = torch.broadcast_shapes(self.shape, mask.shape).numel()
        return write(self, mask, source.reshape(-1)[:count])  # type: ignore[no-any-return]

    return kernel


_MASKS = (torch.bool, torch.uint8)


def index_put(name: str) -> Kernel:
    """`x[mask] = value`; stock finds the places on the CPU, and compiles for their number."""
    write = stock(name)

    def kernel(
        self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
    ) -> Tensor:
        *front, mask = indices
        if mask is None or mask.dtype not in _MASKS or any(index is not None for index in front):
            return write(self, indices, values, accumulate)  # type: ignore[no-any-return]
        behind = self.dim() - len(front) - mask.dim()
        covered = self.shape[len(front) : self.dim() - behind]
        is_one = values.numel() == 1 or values.dim() <= behind  # for all places
        if not is_one or covered != mask.shape or values.dtype != self.dtype:
            return write(self, indices, values, accumulate)  # type: ignore[no-any-return]
        chosen = mask.to(self.device).bool().reshape(mask.shape + (1,) * behind)
        values = (values.reshape(()) if values.numel() == 1 else values).to(self.device)
        return torch.where(chosen, self + values if accumulate else values, self)

    return kernel
