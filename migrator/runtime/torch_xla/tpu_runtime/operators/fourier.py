"""The gradient of `irfft` and `hfft`, and parts of complex numbers.

torch 2.9 doubles a part of the gradient in place, and reads freed memory in the next one where such
a write is still to be done: `irfft(rfft(x))` raises on XLA. Here it isn't in place. torch_xla 2.9
gives the parts a memory layout with one dimension too few: to transpose them, as `istft` of a batch
does, aborts the process.
"""

from typing import Any

import torch
from torch import Tensor

from ..dispatch.replaced_kernels import Kernel, replace, stock

_library = torch.library.Library("aten", "IMPL")  # its registrations live as long as it does


class _ToReal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: list[int], norm: int, size: int) -> Tensor:
        ctx.arguments = dim, norm
        guard = torch._C._AutoDispatchBelowAutograd()
        try:
            return torch.ops.aten._fft_c2r(x, dim, norm, size)  # type: ignore[no-any-return]
        finally:
            del guard

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        dim, norm = ctx.arguments
        half = torch.ops.aten._fft_r2c(gradient, dim, norm, True)
        length = half.size(dim[-1])
        twice = gradient.size(dim[-1]) - length  # places that stand for their conjugates, too
        weights = torch.ones(length, device=half.device, dtype=gradient.dtype)
        weights[1 : 1 + twice] = 2
        shape = [1] * half.dim()
        shape[dim[-1]] = length
        return half * weights.reshape(shape), None, None, None


def _parts(name: str) -> Kernel:
    split = stock(name)

    def kernel(self: Tensor) -> Tensor:
        parts = split(self)
        return torch.stack([parts.select(-1, 0), parts.select(-1, 1)], -1)

    return kernel


def install() -> None:
    """Replace the derivative, and the parts."""
    replace("view_as_real_copy", _parts("view_as_real_copy"))
    _library.impl("_fft_c2r", _ToReal.apply, "AutogradXLA")
