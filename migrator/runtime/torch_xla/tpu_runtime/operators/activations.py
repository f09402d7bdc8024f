"""Activations and bounds that torch_xla 2.9 gets wrong, for single_operators.py."""

import math
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


def log_sigmoid(name: str) -> Kernel:
    """Of -infinity; stock gives NaN."""
    compute = stock(name)

    def kernel(self: Tensor) -> tuple[Tensor, Tensor]:
        values, buffer = compute(self)
        return torch.where(self == -math.inf, self, values), buffer

    return kernel


def clamp(name: str) -> Kernel:
    """Integers clamped by fractions give floats; stock keeps integers. Without one of the bounds
    infinity stays; stock makes it the largest number."""
    names = ("max",) if name == "clamp_max" else ("min", "max")
    of_tensors = name == "clamp.Tensor"
    bound = stock(name if of_tensors else "clamp")

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = dict(zip(names, args, strict=False)) | kwargs
        low, high = given.get("min"), given.get("max")
        dtype = self.dtype
        for limit in (low, high):
            if limit is not None:
                dtype = torch.promote_types(dtype, torch.result_type(self, limit))
        if dtype.is_floating_point and not of_tensors:
            low, high = -math.inf if low is None else low, math.inf if high is None else high
        return bound(self.to(dtype), low, high)  # type: ignore[no-any-return]

    return kernel


def bounded(name: str) -> Kernel:
    """Stock raises if the shapes differ."""
    function = torch.minimum if name.startswith("clamp_max") else torch.maximum
    return lambda self, limit: function(self, limit)


def threshold(self: Tensor, threshold: float, value: float) -> Tensor:
    """NaN stays; stock replaces it."""
    return torch.where(self <= threshold, torch.full_like(self, value), self)


def softshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """NaN stays; stock gives 0."""
    return torch.where(self.abs() <= lambd, self * 0, self - self.sign() * lambd)
