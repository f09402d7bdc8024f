"""Activations that torch_xla 2.9 gets wrong, for single_operators.py."""

from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions

from ..dispatch.replaced_kernels import Kernel, stock


def gelu(name: str) -> Kernel:
    """Stock's constants are float32: off by 7e-9 in float64."""
    compute = stock(name)
    precise: Kernel = torch._refs.nn.functional.gelu
    if "backward" in name:
        precise = decompositions.gelu_backward

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        chosen = precise if args[-1].dtype == torch.float64 else compute
        return chosen(*args, **kwargs)  # type: ignore[no-any-return]

    return kernel


def logit(name: str) -> Kernel:
    """With `eps`; stock gives NaN for values outside of it."""
    compute = stock(name)

    def kernel(self: Tensor, eps: float | None = None) -> Tensor:
        return compute(self if eps is None else self.clamp(eps, 1 - eps), None)  # type: ignore[no-any-return]

    return kernel


def threshold(self: Tensor, threshold: float, value: float) -> Tensor:
    """NaN stays; stock replaces it."""
    return torch.where(self <= threshold, torch.full_like(self, value), self)


def softshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """NaN stays; stock gives 0."""
    return torch.where(self.abs() <= lambd, self * 0, self - self.sign() * lambd)
