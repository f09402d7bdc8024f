"""Operators that torch_xla 2.9 computes wrong, refuses, or ends the process in.

Each says what is wrong. Found by benchmarks/operator_audit.py, which shows what is left.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions
from torch.utils import _pytree as pytree

from .device import DEVICE_TYPE
from .kernels import replace, stock

Kernel = Callable[..., Any]
Number = bool | int | float | complex


# Where it does not matter how fast it is.


def _on_cpu(name: str) -> Kernel:
    """The operator, computed by CPU torch."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        device = next(leaf.device for leaf in leaves if isinstance(leaf, Tensor))
        args, kwargs = pytree.tree_map_only(Tensor, Tensor.cpu, (args, kwargs))
        results = operator(*args, **kwargs)
        return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), results)

    return kernel


def _on_cpu_if(condition: Callable[..., bool]) -> Callable[[str], Kernel]:
    def make(name: str) -> Kernel:
        there, here = stock(name), _on_cpu(name)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            return (here if condition(*args, **kwargs) else there)(*args, **kwargs)

        return kernel

    return make


# Wrong shapes and dtypes.


def _over_all(name: str) -> Kernel:
    """No dimensions, as in `x.amax()` and `x.sum(())`, are all: stock reduces none."""
    reduce = stock(name)

    def kernel(self: Tensor, dim: Any = (), *args: Any, **kwargs: Any) -> Any:
        dim = dim if dim and self.dim() else range(self.dim())
        return reduce(self, list(dim), *args, **kwargs)

    return kernel


def _mean(name: str) -> Kernel:
    """Of integers with a dtype stock raises, of complex numbers too."""
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


def _count_nonzero(self: Tensor, dim: Any = None) -> Tensor:
    """Stock counts in the dtype of the input: bools up to 1."""
    return (self != 0).sum(dim)


def _promoting(name: str) -> Kernel:
    """Both sides in the dtype of the result: stock takes that of the first."""
    compute = stock(name)

    def kernel(self: Any, other: Any) -> Tensor:
        dtype = torch.result_type(self, other)
        if dtype.is_complex:
            raise NotImplementedError(f"{name} of complex numbers")
        if name.endswith(".Tensor") and not isinstance(other, Tensor):
            other = torch.tensor(other, device=self.device)
        sides = (x.to(dtype) if isinstance(x, Tensor) else x for x in (self, other))
        return compute(*sides)  # type: ignore[no-any-return]

    return kernel


def _where(name: str) -> Kernel:
    """`torch.where(mask, halves, floats)` is of floats; stock stays in the first dtype."""
    choose = stock(name)

    def kernel(condition: Tensor, self: Tensor, other: Tensor) -> Tensor:
        if self.dtype != other.dtype:
            dtype = torch.result_type(self, other)
            self, other = self.to(dtype), other.to(dtype)
        return choose(condition, self, other)  # type: ignore[no-any-return]

    return kernel


def _clamp(name: str) -> Kernel:
    """Integers clamped by fractions are floats; stock stays with integers."""
    bound = stock(name)

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        dtype = self.dtype
        for limit in (*args, *kwargs.values()):
            if limit is not None:
                dtype = torch.promote_types(dtype, torch.result_type(self, limit))
        return bound(self.to(dtype), *args, **kwargs)  # type: ignore[no-any-return]

    return kernel


def _bounded(name: str) -> Kernel:
    """Stock raises where the shapes differ."""
    function = torch.minimum if name.startswith("clamp_max") else torch.maximum
    return lambda self, limit: function(self, limit)


def _trace(self: Tensor) -> Tensor:
    """Of integers it is int64; stock stays in their dtype."""
    return self.diagonal().sum()


def _pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """Stock gives the shape of the input for one image with one channel in the result."""
    *batch, channels, height, width = self.shape
    r, n = upscale_factor, len(batch)
    parts = self.reshape(*batch, channels // r**2, r, r, height, width)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return parts.permute(order).reshape(*batch, channels // r**2, height * r, width * r)


def _inverse(name: str) -> Kernel:
    """Stock gives `info` the shape of the matrices."""
    invert = stock(name)

    def kernel(self: Tensor, *, check_errors: bool = False) -> Any:
        inverse, _ = invert(self, check_errors=check_errors)
        return inverse, torch.zeros(self.shape[:-2], dtype=torch.int32, device=self.device)

    return kernel


# Wrong numbers.


def _norm(
    self: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Stock takes powers and roots, also of infinity."""
    values = self.abs() if self.is_complex() else self
    order = 2 if p is None else p
    return torch.linalg.vector_norm(values, order, dim or None, keepdim, dtype=dtype)  # type: ignore[no-any-return]


def _right_shift(name: str) -> Kernel:
    """Stock fills negative numbers with zeros."""
    shift = _shift(name)

    def kernel(self: Any, other: Any) -> Tensor:
        if not isinstance(self, Tensor):
            self = torch.full_like(other, self)
        if self.dtype in (torch.bool, torch.uint8):
            return shift(self, other)  # type: ignore[no-any-return]
        return torch.where(self < 0, ~shift(~self, other), shift(self, other))

    return kernel


def _shift(name: str) -> Kernel:
    compute = _promoting(name)

    def kernel(self: Any, other: Any) -> Tensor:
        if torch.result_type(self, other).is_floating_point:
            raise NotImplementedError(f"{name} of floating point numbers")
        return compute(self, other)  # type: ignore[no-any-return]

    return kernel


def _place_of_extreme(name: str) -> Kernel:
    """The first NaN, as torch has it; stock ends the process for complex numbers."""
    place = stock(name)

    def kernel(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if self.is_complex():
            raise NotImplementedError(f"{name} of complex numbers")
        if not self.dim():
            return torch.zeros((), dtype=torch.int64, device=self.device)
        found: Tensor = place(self, dim, keepdim)
        if not self.is_floating_point():
            return found
        unknown = self.isnan()
        first = stock_argmax(unknown.to(torch.int32), dim, keepdim)
        any_unknown = unknown.any() if dim is None else unknown.any(dim, keepdim)
        return torch.where(any_unknown, first, found)

    return kernel


def _abs(name: str) -> Kernel:
    """Of complex numbers it is real; stock stays complex."""
    absolute = stock(name)

    def kernel(self: Tensor) -> Tensor:
        result: Tensor = absolute(self)
        if result.is_complex():
            parts = torch.ops.aten.view_as_real_copy(result)
            result = parts.select(-1, 0)
        return result

    return kernel


def _as_strided(name: str) -> Kernel:
    """By the places of the elements; stock's gradients are wrong, and so are writes to it."""

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
        return self.reshape(-1)[places(size, stride, offset, self.device)]

    def write(
        self: Tensor, src: Tensor, size: Any, stride: Any, offset: int | None = None
    ) -> Tensor:
        found = places(size, stride, offset, self.device)
        return self.reshape(-1).index_put((found,), src).reshape(self.shape)

    return write if "scatter" in name else read


def _quotient(divide: Kernel) -> Kernel:
    """Of complex numbers; stock drops the imaginary parts."""

    @functools.wraps(divide)
    def kernel(self: Any, other: Any, **kwargs: Any) -> Any:
        sides = [x for x in (self, other) if isinstance(x, Tensor)]
        if not any(x.is_complex() and x.device.type == DEVICE_TYPE for x in sides) or kwargs:
            return divide(self, other, **kwargs)
        return self * (other.reciprocal() if isinstance(other, Tensor) else 1 / other)

    return kernel


# What ends the process, or raises.


def _roll(name: str) -> Kernel:
    """Of no elements; stock divides by zero."""
    roll = stock(name)
    return lambda self, *args: roll(self, *args) if self.numel() else self.clone()


def _repeat(name: str) -> Kernel:
    """No times; stock raises."""
    repeat = stock(name)

    def kernel(self: Tensor, repeats: list[int]) -> Tensor:
        if all(repeats):
            return repeat(self, repeats)  # type: ignore[no-any-return]
        shape = (1,) * (len(repeats) - self.dim()) + tuple(self.shape)
        return self.new_empty([n * times for n, times in zip(shape, repeats, strict=True)])

    return kernel


def _nll_loss(name: str) -> Kernel:
    """Of one sample without a batch; stock ends the process."""
    loss = stock(name)

    def forward(self: Tensor, target: Tensor, *args: Any) -> Any:
        if self.dim() == 2:
            return loss(self, target, *args)
        result, total = loss(self[None], target.reshape(1), *args)
        return result.reshape(()), total

    def backward(gradient: Tensor, self: Tensor, target: Tensor, *args: Any) -> Any:
        if self.dim() == 2:
            return loss(gradient, self, target, *args)
        weight, reduction, *more = args
        if not reduction:
            gradient = gradient.reshape(1)
        return loss(gradient, self[None], target.reshape(1), weight, reduction, *more)[0]

    return backward if "backward" in name else forward


def _of_one_number(name: str) -> Kernel:
    """Along the dimension of a number, which has none; stock raises."""
    compute = stock(name)

    def to_vector(value: Any) -> Any:
        return value.reshape(1) if isinstance(value, Tensor) and not value.dim() else value

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.dim():
            return compute(self, *args, **kwargs)
        results = compute(*map(to_vector, (self, *args)), **kwargs)
        return pytree.tree_map_only(Tensor, lambda tensor: tensor.reshape(()), results)

    return kernel


def _has_divisor(*args: Any) -> bool:
    """Of an average pooling: stock does not take it."""
    is_backward = len(args) > 1 and isinstance(args[1], Tensor)
    return len(args) == 7 + is_backward and args[-1] is not None


def _several_or_none(self: Tensor, *args: Any, **kwargs: Any) -> bool:
    """A batch of matrices, or one without elements; stock decomposes neither right."""
    return self.dim() > 2 or not self.numel()


def _below_zero(*args: Any) -> bool:
    """Of a padding: stock raises."""
    return min(args[-1]) < 0


_KERNELS: dict[Callable[[str], Kernel], str] = {
    _over_all: "amax amin sum.dim_IntList std.correction var.correction var_mean.correction",
    _mean: "mean mean.dim",
    _promoting: """
        remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar
        bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor
    """,
    _where: "where.self",
    _clamp: "clamp clamp.Tensor clamp_min clamp_max",
    _bounded: "clamp_min.Tensor clamp_max.Tensor",
    _inverse: "linalg_inv_ex",
    _shift: """
        __lshift__.Scalar __lshift__.Tensor bitwise_left_shift.Tensor
    """,
    _right_shift: """
        __rshift__.Scalar __rshift__.Tensor bitwise_right_shift.Tensor
    """,
    _place_of_extreme: "argmax argmin",
    _abs: "abs",
    _as_strided: "as_strided_copy as_strided_scatter",
    _roll: "roll",
    _repeat: "repeat",
    _nll_loss: "nll_loss_forward nll_loss_backward",
    _of_one_number: """
        cumsum cummax index_add index_copy index_select kthvalue logsumexp topk max.dim min.dim
        linalg_vector_norm scatter.src scatter.value
    """,
    _on_cpu_if(_has_divisor): """
        avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward
    """,
    _on_cpu_if(_several_or_none): "_linalg_svd",
    _on_cpu_if(_below_zero): """
        replication_pad1d replication_pad2d replication_pad3d
        replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    """,
    _on_cpu: "_linalg_slogdet _pdist_forward",
    lambda name: _count_nonzero: "count_nonzero count_nonzero.dim_IntList",
    lambda name: (
        _norm
    ): "norm.Scalar norm.ScalarOpt_dtype norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype",
    lambda name: _trace: "trace",
    lambda name: _pixel_shuffle: "pixel_shuffle",
    # Stock differentiates the wrong side.
    lambda name: decompositions.elu_backward: "elu_backward",
    lambda name: decompositions._chunk_cat: "_chunk_cat",
}

stock_argmax = stock("argmax")


def install() -> None:
    """Replace the kernels."""
    for make, names in _KERNELS.items():
        for name in names.split():
            replace(name, make(name))
    for owner, names in (
        (torch, "div divide true_divide"),
        (Tensor, "div divide true_divide __truediv__"),
    ):
        for name in names.split():
            setattr(owner, name, _quotient(getattr(owner, name)))
