"""Dropout: torch_xla 2.9 compares and scales halves in bfloat16."""

import torch
from torch import Tensor

from ..random_numbers import random_kernels

_library = torch.library.Library("aten", "IMPL")  # its registrations live as long as it does


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`torch.dropout`."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not train or p == 0 or not input.numel():
        return input
    if p == 1:
        return input * torch.zeros_like(input)
    with torch.no_grad():
        kept = random_kernels.numbers(input) < 1 - p
    return random_kernels.scaled(input, kept, 1 / (1 - p))


def _dropout_in_place(self: Tensor, p: float, train: bool) -> Tensor:
    return self.copy_(dropout(self, p, train)) if train and p else self


def install() -> None:
    for name, function in (("dropout", dropout), ("dropout_", _dropout_in_place)):
        for key in ("XLA", "AutogradXLA"):
            _library.impl(name, function, key)
