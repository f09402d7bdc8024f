"""Numbers that a program reads from bfloat16 and float16 tensors: printed, they are as coarse."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from recorded_tensors import is_transformed

_MOST = 1000  # elements of a printed tensor, and numbers that are kept
_HALVES = (torch.bfloat16, torch.float16)


class Halves:
    """``values``: those numbers, each once."""

    def __init__(self) -> None:
        self._found: dict[float, None] = {}

    @property
    def values(self) -> list[float]:
        return [value for value in self._found if value == value and abs(value) != float("inf")]

    def install(self) -> None:
        """Follow what is read of tensors, from here on."""
        for name in ("item", "tolist", "__float__", "__repr__"):
            setattr(torch.Tensor, name, self._reading(getattr(torch.Tensor, name)))

    def _reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def reads(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            with torch._C.DisableTorchFunction():
                few = tensor.numel() <= _MOST > len(self._found)
                if tensor.dtype in _HALVES and few and not is_transformed():
                    self._note(tensor)
            return read(tensor, *args, **kwargs)

        return reads

    def _note(self, tensor: torch.Tensor) -> None:
        values = tensor.detach().cpu().double().flatten()
        self._found.update(dict.fromkeys(values.tolist()))
