"""Operators that torch only has for GPUs, if the CPU stands in for one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def _of_integers(x: torch.Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> torch.Tensor:
    """`torch.histc` of integers, in integers."""
    if not x.numel():
        return x.new_zeros(bins)
    values = x.flatten().long()
    low, high = (values.min(), values.max()) if min == max else (int(min), int(max))
    if low == high:
        low, high = low - 1, high + 1
    inside = values[(values >= low) & (values <= high)]
    places = ((inside - low) * bins).div(high - low, rounding_mode="floor").clamp(max=bins - 1)
    return torch.bincount(places, minlength=bins).to(x.dtype)


def _histc(stock: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(stock)
    def histc(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        whole = not (input.is_floating_point() or input.is_complex() or input.dtype == torch.bool)
        return (_of_integers if whole and "out" not in kwargs else stock)(input, *args, **kwargs)

    return histc


def install() -> None:
    """Register it."""
    for owner in (torch, torch.Tensor):
        owner.histc = _histc(owner.histc)  # type: ignore[attr-defined,method-assign,assignment]
