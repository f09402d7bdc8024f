"""Operators that torch_xla 2.9 gets wrong, refuses, or crashes in.

Each docstring says what is wrong. Found by benchmarks/operator_audit.py, which shows what is left.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import Kernel, on_cpu, replace_all, stock, substitute
from ..tensors.tensor_methods import NO_COMPLEX128
from .activations import bounded, clamp, gelu, log_sigmoid, logit, softshrink, threshold
from .scatter import index_put, masked_scatter, scatter

Number = bool | int | float | complex


def _on_cpu_if(condition: Callable[..., bool]) -> Callable[[str], Kernel]:
    def make(name: str) -> Kernel:
        there, here = stock(name), on_cpu(name)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            return (here if condition(*args, **kwargs) else there)(*args, **kwargs)

        return kernel

    return make


# Wrong shapes and dtypes.


def _over_all(name: str) -> Kernel:
    """No dimensions, as in `x.amax()` and `x.sum(())`, mean all: stock reduces none."""
    reduce = stock(name)

    def kernel(self: Tensor, dim: Any = (), *args: Any, **kwargs: Any) -> Any:
        dim = dim if dim and self.dim() else range(self.dim())
        return reduce(self, list(dim), *args, **kwargs)

    return kernel


def _mean(name: str) -> Kernel:
    """For integers with a dtype stock raises, for complex numbers as well."""
    reduce = stock(name)

    def kernel(self: Tensor, *args: Any, dtype: torch.dtype | None = None) -> Tensor:
        if dtype is not None and dtype != self.dtype:
            self = self.to(dtype)
        if args and not args[0]:
            args = (list(range(self.dim())), *args[1:])
        if not self.is_complex():
            return reduce(self, *args, dtype=dtype)  # type: ignore[no-any-return]
        total = self.sum(*args)
        return total * (total.numel() / max(self.numel(), 1))

    return kernel


def _where(name: str) -> Kernel:
    """`torch.where(mask, halves, floats)` gives floats; stock keeps the first dtype."""
    choose = stock(name)

    def kernel(condition: Tensor, self: Tensor, other: Tensor) -> Tensor:
        if self.dtype != other.dtype:
            dtype = torch.result_type(self, other)
            self, other = self.to(dtype), other.to(dtype)
        return choose(condition, self, other)  # type: ignore[no-any-return]

    return kernel


def _pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """Stock returns the input's shape for one image with one channel in the result."""
    *batch, channels, height, width = self.shape
    r, n = upscale_factor, len(batch)
    parts = self.reshape(*batch, channels // r**2, r, r, height, width)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return parts.permute(order).reshape(*batch, channels // r**2, height * r, width * r)


def _inverse(name: str) -> Kernel:
    """Stock gives `info` the shape of the matrices; that of complex ones is wrong."""
    invert, invert_complex = stock(name), on_cpu(name)

    def kernel(self: Tensor, *, check_errors: bool = False) -> Any:
        if self.is_complex():
            return invert_complex(self, check_errors=check_errors)
        inverse, _ = invert(self, check_errors=check_errors)
        return inverse, torch.zeros(self.shape[:-2], dtype=torch.int32, device=self.device)

    return kernel


# Wrong numbers.


def _norm(
    self: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Stock computes powers and roots, also for infinity."""
    values = self.abs() if self.is_complex() else self
    order = 2 if p is None else p
    return torch.linalg.vector_norm(values, order, dim or None, keepdim, dtype=dtype)  # type: ignore[no-any-return]


def _vector_norm(name: str) -> Kernel:
    """Complex numbers; stock raises."""
    norm = stock(name)
    return lambda self, *args, **kwargs: norm(
        self.abs() if self.is_complex() else self, *args, **kwargs
    )


def _place_of_extreme(name: str) -> Kernel:
    """The position of the first NaN, as in torch; stock crashes for complex numbers."""
    place = stock(name)

    def kernel(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if self.is_complex():
            raise NotImplementedError(f"{name} of complex numbers")
        if not self.dim():
            return torch.zeros((), dtype=torch.int64, device=self.device)
        return _or_of_nan(place(self, dim, keepdim), self, dim, keepdim)

    return kernel


def _extreme(name: str) -> Kernel:
    """With the position of the first NaN; stock has that of another element."""
    compute = stock(name)

    def kernel(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        values, places = compute(self, dim, keepdim)
        return values, _or_of_nan(places, self, dim, keepdim)

    return kernel


def _or_of_nan(places: Tensor, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Positions; that of the first NaN where there is one."""
    if not x.is_floating_point() or not x.dim():
        return places
    unknown = x.isnan()
    first = stock_argmax(unknown.to(torch.int32), dim, keepdim)
    return torch.where(unknown.any() if dim is None else unknown.any(dim, keepdim), first, places)


def _isnan(self: Tensor) -> Tensor:
    """Bools and complex numbers; stock raises."""
    return self != self


def _cummax(name: str) -> Kernel:
    """The last position of equals, and NaN from the first one on; stock returns the first."""
    running = stock(name)

    def kernel(self: Tensor, dim: int) -> Any:
        if not self.dim():
            return self.clone(), torch.zeros_like(self, dtype=torch.int64)
        places = torch.arange(self.shape[dim], device=self.device)
        places = places.reshape([-1 if n == dim % self.dim() else 1 for n in range(self.dim())])
        values = running(self, dim)[0]
        reached = self == values
        if self.is_floating_point():
            unknown = _isnan(self)
            after = unknown.to(torch.int32).cumsum(dim) > 0
            values = torch.where(after, torch.nan, values)
            reached = torch.where(after, unknown, reached)
        return values, running(torch.where(reached, places, 0), dim)[0]

    return kernel


def _arange(name: str) -> Kernel:
    """As many numbers as in torch; stock's `torch.arange(0, 1, 0.1)` has 11."""
    make = stock(name)

    def kernel(start: Number, end: Number, step: Number = 1, *, out: Tensor) -> Tensor:
        if isinstance(step, float) or isinstance(start, float) or isinstance(end, float):
            count = math.ceil((end - start) / step)  # type: ignore[arg-type]
            end = start + (count - 0.5) * step if count > 0 else start
        return make(start, end, step, out=out)  # type: ignore[no-any-return]

    return kernel


def _linspace(name: str) -> Kernel:
    """float64; stock computes it in float32."""
    make = stock(name)

    def kernel(start: Any, end: Any, steps: int, *, dtype: Any = None, **kwargs: Any) -> Tensor:
        if dtype != torch.float64:
            return make(start, end, steps, dtype=dtype, **kwargs)  # type: ignore[no-any-return]
        places = torch.arange(steps, dtype=dtype, device=kwargs["device"])
        step = (end - start) / max(steps - 1, 1)
        back = end - step * (steps - 1 - places)
        return torch.where(places < max(steps // 2, 1), start + step * places, back)

    return kernel


def _abs(name: str) -> Kernel:
    """Real for complex numbers; stock stays complex."""
    absolute = stock(name)

    def kernel(self: Tensor) -> Tensor:
        result: Tensor = absolute(self)
        if result.is_complex():
            parts = torch.ops.aten.view_as_real_copy(result)
            result = parts.select(-1, 0)
        return result

    return kernel


def _as_strided(name: str) -> Kernel:
    """By the positions of the elements; stock's gradients are wrong, and so are writes to it."""

    def places(size: Any, stride: Any, offset: int | None, device: torch.device) -> Tensor:
        found = torch.full(tuple(size), offset or 0, dtype=torch.int64, device=device)
        for dim, (length, step) in enumerate(zip(size, stride, strict=True)):
            along = torch.arange(length, device=device) * step
            found = found + along.reshape([-1 if n == dim else 1 for n in range(len(size))])
        return found

    def read(self: Tensor, size: Any, stride: Any, offset: int | None = None) -> Tensor:
        last = (offset or 0) + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if last >= self.numel() and all(size):
            raise RuntimeError(f"sizes {size} and strides {stride} are out of bounds")
        found = places(size, stride, offset, self.device).reshape(-1)
        return self.reshape(-1).index_select(0, found).reshape(tuple(size))

    def write(
        self: Tensor, src: Tensor, size: Any, stride: Any, offset: int | None = None
    ) -> Tensor:
        found = places(size, stride, offset, self.device).reshape(-1)
        return self.reshape(-1).index_put((found,), src.reshape(-1)).reshape(self.shape)

    return write if "scatter" in name else read


def _quotient(name: str) -> Kernel:
    """Complex numbers; stock drops the imaginary parts."""
    divide = stock(name)

    def kernel(self: Tensor, other: Any) -> Tensor:
        if not torch.result_type(self, other).is_complex:
            return divide(self, other)  # type: ignore[no-any-return]
        return self * (other.reciprocal() if isinstance(other, Tensor) else 1 / other)

    return kernel


def _conjugated(name: str) -> Kernel:
    """Complex numbers; stock doesn't conjugate their gradients."""
    stays, conjugates = stock(name), getattr(decompositions, name)

    def kernel(gradient: Tensor, output: Tensor) -> Tensor:
        return (conjugates if output.is_complex() else stays)(gradient, output)  # type: ignore[no-any-return]

    return kernel


def _polygamma_in_place(compute: Kernel) -> Kernel:
    """Stock can't write it to a tensor."""

    @functools.wraps(compute)
    def kernel(self: Tensor, n: int) -> Tensor:
        if self.device.type != DEVICE_TYPE or not self.is_floating_point():
            return compute(self, n)  # type: ignore[no-any-return]
        return self.copy_(torch.polygamma(n, self.clone()))

    return kernel


def _has_divisor(*args: Any) -> bool:
    """A divisor for average pooling, which stock ignores."""
    is_backward = len(args) > 1 and isinstance(args[1], Tensor)
    return len(args) == 7 + is_backward and args[-1] is not None


def _several_or_none(self: Tensor, *args: Any, **kwargs: Any) -> bool:
    """A batch of matrices, or one without elements: stock decomposes both wrongly.

    And float64, of which stock has 7 digits.
    """
    return self.dim() > 2 or not self.numel() or self.dtype == torch.float64


def _transform(name: str) -> Kernel:
    """For float64 the result is complex128, and operations on that are wrong."""
    compute = on_cpu(name)

    def kernel(self: Tensor, *args: Any) -> Tensor:
        if self.dtype in (torch.float64, torch.complex128):
            raise RuntimeError(NO_COMPLEX128)
        return compute(self, *args)  # type: ignore[no-any-return]

    return kernel


def _below_zero(*args: Any) -> bool:
    """Negative padding: stock raises."""
    least: int = min(args[-1])
    return least < 0


_KERNELS: dict[Callable[[str], Kernel], str] = {
    _over_all: """
        amax amin sum.dim_IntList std.correction var.correction std_mean.correction
        var_mean.correction
    """,
    _mean: "mean mean.dim",
    _where: "where.self",
    clamp: "clamp clamp.Tensor clamp_min clamp_max",
    bounded: "clamp_min.Tensor clamp_max.Tensor",
    _inverse: "linalg_inv_ex",
    _vector_norm: "linalg_vector_norm",
    masked_scatter: "masked_scatter",
    index_put: "index_put",
    scatter: "scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add",
    gelu: "gelu gelu_backward",
    logit: "logit",
    log_sigmoid: "log_sigmoid_forward",
    _place_of_extreme: "argmax argmin",
    _extreme: "max.dim min.dim",
    _abs: "abs",
    _quotient: "div.Tensor div.Scalar",
    _conjugated: "tanh_backward sigmoid_backward",
    _cummax: "cummax",
    _arange: "arange.start_out",
    _linspace: "linspace",
    _as_strided: "as_strided_copy as_strided_scatter",
    _on_cpu_if(_has_divisor): """
        avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward
    """,
    _on_cpu_if(_several_or_none): "_linalg_svd",
    _on_cpu_if(Tensor.is_complex): "acosh",  # another branch
    _on_cpu_if(_below_zero): """
        replication_pad1d replication_pad2d replication_pad3d
        replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    """,
    _transform: "_fft_r2c _fft_c2r _fft_c2c",
    on_cpu: "_linalg_slogdet _pdist_forward",
    lambda name: (
        _norm
    ): "norm.Scalar norm.ScalarOpt_dtype norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype",
    lambda name: _pixel_shuffle: "pixel_shuffle",
    lambda name: _isnan: "isnan",
    lambda name: threshold: "threshold",
    lambda name: softshrink: "softshrink",
    # Stock differentiates the wrong side.
    lambda name: decompositions.elu_backward: "elu_backward",
    lambda name: decompositions._chunk_cat: "_chunk_cat",
}
# Stock leaves those of the second kind on the CPU, if the first tensor is a number.
_ALSO_WITH_NUMBERS: dict[Callable[[str], Kernel], str] = {
    stock: "remainder.Tensor atan2 xlogy.Tensor lerp.Tensor lerp.Scalar index_fill.int_Tensor",
    on_cpu: """
        fmax fmin copysign.Tensor hypot nextafter logaddexp logaddexp2 heaviside special_zeta
        special_xlog1py igamma igammac gcd lcm
    """,
}

stock_argmax = stock("argmax")


def install() -> None:
    """Replace the kernels."""
    replace_all(_KERNELS)
    replace_all(_ALSO_WITH_NUMBERS)
    substitute(Tensor, "polygamma_", _polygamma_in_place(Tensor.polygamma_))
