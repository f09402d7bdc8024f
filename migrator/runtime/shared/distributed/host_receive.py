"""Tensors received from another rank, through the hosts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Tensors = list[Tensor]


class Received(torch._C._distributed_c10d.Work):
    """Received values are copied to the device's tensors when the program waits for them."""

    def __init__(self, tensors: Tensors, receive: Callable[[Tensors], Any]) -> None:
        super().__init__()
        self._places = [torch.empty(t.shape, dtype=t.dtype, device="cpu") for t in tensors]
        self._work, self._tensors = receive(self._places), tensors

    @torch.no_grad()
    def wait(self, *timeout: Any) -> bool:
        """Wait for the data, and copy it to its tensor."""
        self._work.wait(*timeout)
        while self._places:
            self._tensors[len(self._places) - 1].copy_(self._places.pop())
        return True

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def _source_rank(self) -> int:
        return int(self._work._source_rank())
