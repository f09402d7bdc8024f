"""Models that assert something of tensors. (In a file of tests, pytest rewrites assertions.)"""

import torch
from torch import Tensor, nn


def distance(a: Tensor, b: Tensor) -> Tensor:
    assert (a[:, 1:] >= a[:, :1]).all(), "not sorted"
    assert not (b < 0).any()
    return (a - b).abs().mean()


class Criterion(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return distance(a, b)


class Catching(nn.Module):
    """Whose other way is taken where the assertion fails."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        try:
            assert (b >= 0).all()
        except AssertionError:
            return (a + b).square().mean()
        return distance(a, b)


class Reading(nn.Module):
    """Can't be compiled as a whole: its operators are recorded one by one."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        weight = 2.0 if a.sum().item() > 1e6 else 1.0
        return weight * distance(a, b)


class Either(nn.Module):
    """What the condition says is used."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        if (b >= 0).all():
            return distance(a, b)
        return (a + b).square().mean()


class Sorted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).sort(1)[0]
