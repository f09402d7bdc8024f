"""Tensor methods and modes that torch_xla gets wrong."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import substitute
from ..dispatch.without_gradients import inference_mode
from .dense_warning import warn_of

# torch_xla 2.9 drops the imaginary parts of a complex tensor that is moved.
NO_COMPLEX128 = "complex128 is not available on this device: use complex64"


def _counting(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`cumsum` and `cumprod` of integers in int64, as torch gives them.

    torch_xla 2.9 keeps the input's dtype: sums of a mask stop at 1, of uint8 wrap at 256.
    """

    @functools.wraps(function)
    def in_int64(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        exact = input.is_floating_point() or input.is_complex()
        if not exact and input.device.type == DEVICE_TYPE and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.int64
        return function(input, *args, **kwargs)

    return in_int64


def _of_no_complex128(read: Callable[..., Any]) -> Callable[..., Any]:
    """A method that reads a tensor: float64 combined with complex numbers is complex128."""

    @functools.wraps(read)
    def checked(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.dtype is torch.complex128 and self.device.type == DEVICE_TYPE:
            raise RuntimeError(NO_COMPLEX128)
        return read(self, *args, **kwargs)

    return checked


def _made_elsewhere(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`zeros_like(x, device="cpu")`: torch_xla 2.9 returns a tensor that can't be read."""

    @functools.wraps(make)
    def made(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device")
        if input.device.type == DEVICE_TYPE and isinstance(device, (str, torch.device)):
            if torch.device(device).type != DEVICE_TYPE:
                input = torch.empty(input.shape, dtype=input.dtype, device=device)
        return make(input, *args, **kwargs)

    return made


def _resize_as(resize: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`x.resize_as_(y)`: torch_xla 2.9 keeps all elements, and reading it raises."""

    @functools.wraps(resize)
    def resized(self: torch.Tensor, other: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        if self.device.type == DEVICE_TYPE:
            return self.resize_(other.shape)
        return resize(self, other, **kwargs)

    return resized


def _device_first(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """`x.to(rank)`: a number means a CUDA device, and here this process's device."""
    return (DEVICE_TYPE, *arguments[1:]) if arguments and type(arguments[0]) is int else arguments


def _device_named(arguments: dict[str, Any]) -> dict[str, Any]:
    is_number = type(arguments.get("device")) is int
    return {**arguments, "device": DEVICE_TYPE} if is_number else arguments


def install() -> None:
    """Replace what is wrong, only for device tensors."""
    torch.inference_mode = inference_mode  # type: ignore[assignment,misc]
    copy_, pin_memory, to = torch.Tensor.copy_, torch.Tensor.pin_memory, torch.Tensor.to

    @functools.wraps(copy_)
    def copy_broadcast(self: torch.Tensor, source: Any, non_blocking: bool = False) -> torch.Tensor:
        if not isinstance(source, torch.Tensor):
            return self.fill_(source)
        # torch_xla 2.9: `device.copy_(cpu)` silently gives the destination the source's shape.
        if self.device.type == DEVICE_TYPE and self.shape != source.shape:
            source = source.expand(self.shape)
        return copy_(self, source, non_blocking)

    @functools.wraps(pin_memory)
    def pin_nothing(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        # Pinning raises without CUDA; it only makes copies to a GPU faster.
        return self

    @functools.wraps(to)
    def to_dense_or_there(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        args, kwargs = _device_first(args), _device_named(kwargs)
        if self.dtype is torch.complex128 and DEVICE_TYPE in (
            self.device.type,
            getattr(torch._C._nn._parse_to(*args, **kwargs)[0], "type", None),
        ):
            raise RuntimeError(NO_COMPLEX128)
        # torch_xla 2.9 has no sparse tensors: moving one raises.
        if self.layout is not torch.strided:
            device = torch._C._nn._parse_to(*args, **kwargs)[0]
            if device is not None and device.type == DEVICE_TYPE:
                warn_of(self)
                return to(self.to_dense(), *args, **kwargs)
        return to(self, *args, **kwargs)

    for name in ("cpu", "item", "tolist", "__complex__"):
        setattr(torch.Tensor, name, _of_no_complex128(getattr(torch.Tensor, name)))
    module_to = nn.Module.to

    @functools.wraps(module_to)
    def module_there(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        return module_to(self, *_device_first(args), **_device_named(kwargs))

    nn.Module.to = module_there  # type: ignore[assignment,method-assign]
    torch.Tensor.to = to_dense_or_there  # type: ignore[assignment,method-assign]
    # Parameters of lazy modules only allow some functions.
    UninitializedTensorMixin._allowed_methods.append(to_dense_or_there)
    for name in ("empty", "full", "ones", "rand", "randint", "randn", "zeros"):
        substitute(torch, f"{name}_like", _made_elsewhere(getattr(torch, f"{name}_like")))
    for name in ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"):
        substitute(torch.Tensor, name, _made_elsewhere(getattr(torch.Tensor, name)))
    substitute(torch.Tensor, "resize_as_", _resize_as(torch.Tensor.resize_as_))
    for name in ("cumsum", "cumprod"):
        for owner in (torch, torch.Tensor):
            substitute(owner, name, _counting(getattr(owner, name)))
    torch.Tensor.copy_ = copy_broadcast  # type: ignore[assignment,method-assign]
    torch.Tensor.pin_memory = pin_nothing  # type: ignore[assignment,method-assign]
