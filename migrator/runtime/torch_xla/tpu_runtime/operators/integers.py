"""Operators that torch_xla 2.9 gets wrong for integers and bools, or computes in a wrong dtype.

Each docstring says what is wrong. Found by benchmarks/operator_audit.py.
"""

import functools
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_builder as xb
from torch import Tensor

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import Kernel, replace_all, stock, substitute

_TYPES = {dtype: name for name, dtype in xb._XLA_PT_TYPE_MAP.items()}


@functools.lru_cache(maxsize=4096)
def _division(dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    shapes = [xb.Shape.create(_TYPES[dtype], shape)] * 2
    return xb.create_computation("quotient", lambda left, right: left / right, shapes)


def _together(*sides: Any) -> list[Tensor]:
    """Device tensors, in the dtype that torch gives to results of both."""
    dtype = torch.result_type(*sides)
    device = next(x.device for x in sides if isinstance(x, Tensor) and x.device.type == DEVICE_TYPE)
    wide = dtype if dtype.is_signed else torch.int64  # from which -3 becomes 253 in uint8
    return [
        (x if isinstance(x, Tensor) else torch.full((), x, dtype=wide, device=device)).to(
            device, dtype
        )
        for x in sides
    ]


def _quotient(name: str) -> Kernel:
    """XLA's own for integers; stock goes through float32, which is wrong beyond 2**24."""
    divide = stock(name)

    def kernel(self: Any, other: Any, rounding_mode: str | None = "floor") -> Tensor:
        dtype = torch.result_type(self, other)
        left, right = _together(self, other)
        if rounding_mode is None or dtype.is_floating_point or dtype.is_complex:
            how = {"rounding_mode": rounding_mode} if name.startswith("div") else {}
            return divide(left, right, **how)  # type: ignore[no-any-return]
        if dtype == torch.bool:
            raise NotImplementedError(f"{name} of bools")
        left, right = torch.broadcast_tensors(left, right)
        computation = _division(dtype, tuple(left.shape))
        inputs = [left, right]
        result: Tensor = torch_xla._XLAC._xla_user_computation(
            "xla::quotient", inputs, computation
        )[0]
        if rounding_mode == "trunc" or not dtype.is_signed:
            return result
        rest = left - result * right
        return torch.where((rest != 0) & ((rest < 0) != (right < 0)), result - 1, result)

    return kernel


def _promoting(name: str) -> Kernel:
    """Both sides in the dtype of the result: stock uses the first one's."""
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


def _right_shift() -> Kernel:
    """Stock fills negative numbers with zeros; its `>>` shifts one number by several to nothing."""
    shift = _shift("bitwise_right_shift.Tensor")

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


def _count_nonzero(self: Tensor, dim: Any = None) -> Tensor:
    """Stock counts in the dtype of the input: bools up to 1."""
    return (self != 0).sum(dim)


def _trace(self: Tensor) -> Tensor:
    """Of integers it is int64; stock stays in their dtype."""
    return self.diagonal().sum()


_APART = {(torch.int8, torch.uint8), (torch.float16, torch.bfloat16)}
_APART |= {(right, left) for left, right in _APART}


def _promoted(compute: Kernel) -> Kernel:
    """Neither side has the dtype of the result: stock uses one of theirs."""

    @functools.wraps(compute)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and isinstance(args[1], Tensor) and isinstance(args[0], Tensor):
            left, right, *rest = args
            if (left.dtype, right.dtype) in _APART and left.device.type == DEVICE_TYPE:
                dtype = torch.result_type(left, right)
                args = (left.to(dtype), right.to(dtype), *rest)
        return compute(*args, **kwargs)

    return kernel


def _promoting_floats(name: str) -> Kernel:
    """Integers combined with halves give halves; stock gives float32."""
    compute = stock(name)

    def kernel(self: Tensor, other: Tensor) -> Tensor:
        dtype = torch.result_type(self, other)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        return compute(self.to(dtype), other.to(dtype))  # type: ignore[no-any-return]

    return kernel


def _extreme(name: str) -> Kernel:
    """Stock's result has the dtype of one side."""
    return _promoted(stock(name))


def _power(name: str) -> Kernel:
    """Both sides in the dtype of the result."""
    compute = stock(name)

    def kernel(self: Tensor, exponent: Tensor) -> Tensor:
        dtype = torch.result_type(self, exponent)
        return compute(self.to(dtype), exponent.to(dtype))  # type: ignore[no-any-return]

    return kernel


def _histogram(name: str) -> Kernel:
    """Integers, which stock leaves to the CPU: it has no such kernel."""
    compute = stock(name)

    def kernel(self: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
        if self.dtype.is_floating_point or not self.numel():
            return compute(self, bins, min, max)  # type: ignore[no-any-return]
        x = self.flatten().long()
        low, high = torch.aminmax(x) if min == max else (x.new_tensor(int(v)) for v in (min, max))
        alone = (low == high).long()
        low, high = low - alone, high + alone
        places = ((x - low) * bins).div(high - low, rounding_mode="floor").clamp(max=bins - 1)
        places = torch.where((x >= low) & (x <= high), places, bins)
        counts = self.new_zeros(bins + 1).scatter_add(0, places, self.new_ones(x.shape))
        return counts[:bins]

    return kernel


def install() -> None:
    """Replace the kernels, and functions that are called too often for Python kernels."""
    for owners, names in (
        ((torch, Tensor), "add sub subtract div divide true_divide"),
        ((torch, Tensor), "lt less le less_equal gt greater ge greater_equal"),
        ((torch,), "rsub"),
        ((Tensor,), "__add__ __sub__ __truediv__ __lt__ __le__ __gt__ __ge__"),
    ):
        for owner in owners:
            for name in names.split():
                substitute(owner, name, _promoted(getattr(owner, name)))
    replace_all(
        {
            _quotient: "floor_divide div.Tensor_mode",
            _promoting: """
                remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar
                bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor
            """,
            _shift: "__lshift__.Scalar __lshift__.Tensor bitwise_left_shift.Tensor",
            lambda name: (
                _right_shift()
            ): "__rshift__.Scalar __rshift__.Tensor bitwise_right_shift.Tensor",
            lambda name: _count_nonzero: "count_nonzero count_nonzero.dim_IntList",
            lambda name: _trace: "trace",
            _extreme: "maximum minimum",
            _promoting_floats: "atan2",
            _power: "pow.Tensor_Tensor",
            _histogram: "histc",
        }
    )
