"""Tensor methods that torchax lacks or gets wrong: moving, printing. More: tensor_functions.py."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch.nn.parameter import Parameter, UninitializedTensorMixin  # type: ignore[attr-defined]
from torchax.ops import mappings
from torchax.tensor import Environment, Tensor
from torchax.view import View

from ..device import DEVICE_TYPE
from ..dispatch.calls import (
    Function,
    holds_device_tensor,
    is_device_tensor,
    names_device,
    native,
    patch,
    replaces,
)
from ..dispatch.lost_gradients import to_other_device
from .dense_warning import warn_of
from .tensor_identity import on_device

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_META = torch.device("meta")  # what C++ takes device tensors for


@replaces(torch.Tensor.to)
def _to(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """`x.to(...)` in all forms.

    torchax 0.0.13 loses the gradient in `x.to(dtype)` and mistakes positional `copy` and
    `non_blocking` for other arguments.
    """
    tensor, device, dtype, copied = _parse_to(*args, **kwargs)
    if not is_device_tensor(tensor):
        if not names_device(device):
            return native(function, tuple(_on_cpu(a) for a in args), kwargs)
        if tensor.layout is not torch.strided:
            warn_of(tensor)
        converted = tensor if dtype is None else native(tensor.to, (dtype,), {})
        check_range(converted)
        moved = to_other_device(env, converted)
        kind: type = type(tensor)
        if isinstance(tensor, UninitializedTensorMixin):
            moved.__class__ = on_device(kind)
        elif type(tensor) is not torch.Tensor and not isinstance(tensor, Parameter):
            warn_of_class(kind)
        return moved
    if isinstance(tensor, View):
        tensor = tensor.torch()
    if device is not None and not names_device(device) and not isinstance(device, int):
        if torch.device(device).type not in ("cpu", "meta"):
            raise RuntimeError(f"a {DEVICE_TYPE} tensor cannot be moved to {device}")
        on_cpu = to_other_device(env, tensor)
        return native(on_cpu.to, (device,), {} if dtype is None else {"dtype": dtype})
    if dtype is not None and mappings.t2j_dtype(dtype) != mappings.t2j_dtype(tensor.dtype):
        with env._dispatch_mode:
            return torch.ops.aten._to_copy.default(tensor, dtype=dtype)
    return tensor.clone() if copied else tensor


@functools.cache
def warn_of_class(kind: type) -> None:
    name = kind.__name__
    warnings.warn(f"a {name} is a plain tensor on the device: its methods are not there, nor is "
                  "its __torch_function__ called", stacklevel=4)  # fmt: skip


def check_range(tensor: torch.Tensor) -> None:
    """Refuse integers that JAX, with its 64-bit types off, would silently cut to 32 bits."""
    if tensor.dtype != torch.int64 or tensor.numel() == 0 or jax.config.read("jax_enable_x64"):
        return
    low, high = (int(value) for value in native(tensor.aminmax, (), {}))
    check_limits(low, high)


def check_limits(low: int, high: int) -> None:
    if not (-(2**31) <= low <= high < 2**31 or jax.config.read("jax_enable_x64")):
        raise OverflowError(
            f"int64 values from {low} to {high} do not fit the device's 32-bit integers; "
            "set JAX_ENABLE_X64=1, or keep them on the CPU"
        )


def _on_cpu(value: Any) -> Any:
    return value.torch() if is_device_tensor(value) else value


def _parse_to(
    tensor: torch.Tensor,
    *args: Any,
    device: Any = None,
    dtype: torch.dtype | None = None,
    copy: bool = False,
    non_blocking: bool = False,
    memory_format: object = None,
    other: torch.Tensor | None = None,
) -> tuple[Any, Any, torch.dtype | None, bool]:
    flags: list[bool] = []
    for value in args if other is None else (other, *args):
        if isinstance(value, torch.Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, bool):
            flags.append(value)
        elif value is not None:
            device = value
    return tensor, device, dtype, copy or (len(flags) > 1 and flags[1])


@replaces(torch.tensor, torch.as_tensor, torch.asarray)
def _tensor(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """`torch.tensor(x)` where x is or contains device tensors; torchax 0.0.13 raises."""
    data: Any = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    if not holds_device_tensor(data):
        return NotImplemented
    if is_device_tensor(data):
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        with env:
            result = data.detach().clone() if function is torch.tensor else data
            result = result.to(device if device is not None else DEVICE_TYPE, dtype or data.dtype)
        return result.requires_grad_() if kwargs.get("requires_grad") else result
    with env:
        return function(_numbers(data), **{k: v for k, v in kwargs.items() if k != "data"})


def _numbers(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_numbers(item) for item in data]
    return data.tolist() if is_device_tensor(data) else data


@replaces(torch.Tensor.__format__)
def _format(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """`f"{loss}"` is the number, as for a CUDA tensor; torchax 0.0.13 raises for `{loss:.4f}`."""
    tensor, spec = args
    if not is_device_tensor(tensor):
        return NotImplemented
    return format(tensor.jax().item(), spec) if tensor.dim() == 0 else str(tensor)


@replaces(torch.Tensor.tolist)
def _tolist(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    return args[0].jax().tolist() if is_device_tensor(args[0]) else NotImplemented


@replaces(torch.Tensor.pin_memory)
def _pin_memory(env: Environment, function: Function, args: Args, kwargs: Kwargs) -> Any:
    """Pinning only makes copies to a GPU faster; the tensor itself is the right answer here."""
    return args[0]


def _repr(stock: Callable[..., str]) -> Callable[[Tensor], str]:
    def show(self: Tensor) -> str:
        if isinstance(self._elem, jax.core.Tracer):
            return stock(self)
        text = native(repr, (self.torch(),), {})
        grad = ", requires_grad=True" if self.requires_grad else ""
        kind = "Parameter containing:\n" if isinstance(self, torch.nn.Parameter) else ""
        return f"{kind}{text[:-1]}, device='{self.device}'{grad})"

    return show


def _new(cls: type, elem: Any, env: Environment, requires_grad: bool = False) -> Any:
    """A device tensor, with torchax's work in `Tensor.__init__`, to which `torch.Tensor(x)` passes
    its own arguments if the result is a device tensor."""
    dtype = mappings.j2t_dtype(elem.dtype)
    made: Any = torch.Tensor._make_wrapper_subclass(
        cls,
        [size if type(size) is int else 1 for size in elem.shape],
        dtype=dtype,
        device=_META,
        requires_grad=requires_grad and (dtype.is_floating_point or dtype.is_complex),
    )
    made.__dict__["_elem"], made._env = elem, env
    return made


def install(env: Environment) -> None:
    """Mend the methods of torchax's tensor class."""
    # float64 still warns: float32 results are different numbers, int32 indices are the same.
    warnings.filterwarnings("ignore", "Explicitly requested dtype int64", UserWarning)
    show = _repr(Tensor.__repr__)
    patch(
        Tensor,
        # C++ takes device tensors for meta tensors, and load_state_dict warns that it does nothing.
        is_meta=property(lambda self: False),
        __new__=staticmethod(_new),
        __init__=lambda self, *args, **kwargs: None,
        __repr__=show,
        __str__=show,
        numpy=lambda self, *, force=False: np.array(self._elem),
    )
    if "flatten" in Tensor.__dict__:
        del Tensor.flatten  # torchax 0.0.13: wrong for a negative start, and loses the gradient
