"""Numbers written at negative indices: torch_tpu 0.2.0 leaves those elements unchanged.

`x[[0, -1]] = 3.0` and `x.index_fill_(0, i, 3.0)` don't write to elements counted from the end.
If the value is a tensor, torch_tpu counts like torch.
"""

import functools
from typing import Any

import torch


def install() -> None:
    torch.Tensor.__setitem__ = _set(torch.Tensor.__setitem__)  # type: ignore[method-assign]
    torch.Tensor.index_fill_ = _fill(torch.Tensor.index_fill_)  # type: ignore[method-assign]
    torch.Tensor.index_fill = _fill(torch.Tensor.index_fill)  # type: ignore[method-assign]
    torch.index_fill = _fill(torch.index_fill)


def _set(original: Any) -> Any:
    @functools.wraps(original)
    def __setitem__(self: torch.Tensor, key: Any, value: Any) -> None:
        if isinstance(value, (int, float, complex)) and self.device.type == "tpu" and _gathers(key):
            value = torch.full((), value, dtype=self.dtype, device=self.device)
        original(self, key, value)

    return __setitem__


def _gathers(key: Any) -> bool:
    """Whether some of it are indices, and not only an integer or a slice."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(part, (torch.Tensor, list)) for part in parts)


def _fill(original: Any) -> Any:
    @functools.wraps(original)
    def index_fill(input: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
        if input.device.type == "tpu":
            size = input.size(dim) if input.dim() else 1
            index = torch.where(index < 0, index + size, index)
        return original(input, dim, index, value)

    return index_fill
