"""Lists of indices with a slice between them: `x[i, :, j]`.

torch_tpu 0.2.0, eagerly: a write through them gives the written value no gradient, and the
backward pass of a read raises an error. The same indices work on a view whose dimensions are
adjacent, and mean the same, because torch puts their dimension first in both cases.
"""

import functools
from typing import Any

import torch


def install() -> None:
    torch.Tensor.__getitem__ = _get(torch.Tensor.__getitem__)  # type: ignore[method-assign]
    torch.Tensor.__setitem__ = _set(torch.Tensor.__setitem__)  # type: ignore[method-assign]


def _get(original: Any) -> Any:
    @functools.wraps(original)
    def __getitem__(self: torch.Tensor, key: Any) -> Any:
        if isinstance(key, tuple) and self.requires_grad and self.device.type == "tpu":
            self, key = _beside(self, key, original)
        return original(self, key)

    return __getitem__


def _set(original: Any) -> Any:
    @functools.wraps(original)
    def __setitem__(self: torch.Tensor, key: Any, value: Any) -> None:
        if isinstance(key, tuple) and self.device.type == "tpu":
            if self.requires_grad or (isinstance(value, torch.Tensor) and value.requires_grad):
                self, key = _beside(self, key, torch.Tensor.__getitem__)
        original(self, key, value)

    return __setitem__


def _beside(tensor: torch.Tensor, key: tuple[Any, ...], get: Any) -> tuple[torch.Tensor, Any]:
    """A view and its key, if lists are apart; otherwise the arguments."""
    lists = [part for part in key if _is_list(part)]
    if len(lists) < 2 or torch.compiler.is_compiling():
        return tensor, key
    if not all(_is_list(p) or p is None or p is ... or type(p) in (int, slice) for p in key):
        return tensor, key
    indexed = sum(part is not None and part is not ... for part in key)
    at, places = 0, []
    for part in key:  # the dimensions of the view that only has slices and single indices
        if _is_list(part):
            places.append(at)
        at += tensor.dim() - indexed if part is ... else type(part) is not int
    if places[-1] - places[0] == len(places) - 1:
        return tensor, key
    view = get(tensor, tuple(slice(None) if _is_list(part) else part for part in key))
    rest = [dim for dim in range(view.dim()) if dim not in places]
    return view.permute(*places, *rest), tuple(lists)


def _is_list(part: Any) -> bool:
    if isinstance(part, torch.Tensor):
        return part.dim() > 0 and part.dtype not in (torch.bool, torch.uint8)
    return isinstance(part, list) and all(type(number) is int for number in part)
