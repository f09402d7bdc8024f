"""Stand-ins for `torch.cuda.FloatTensor` and its siblings, and functions that accept them."""

import functools
from typing import Any, overload

import torch

from ..device import DEVICE_TYPE


class _TensorType(type):
    """A type that creates device tensors of one dtype, like torch's legacy constructors."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        """A tensor of these sizes (of zeros), or of the values of a list, array or tensor.

        Raises TypeError for a tensor of another dtype.
        """
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            if args[0].dtype != cls._held_dtype():
                raise TypeError(f"expected {cls.dtype} (got {args[0].dtype})")
            return args[0].to(DEVICE_TYPE)
        kwargs.pop("device", None)
        if args and all(isinstance(size, int) for size in args) and not kwargs:
            return torch.zeros(*args, dtype=cls.dtype, device=DEVICE_TYPE)
        if _are_values(args):
            return torch.tensor(args[0], dtype=cls.dtype, device=DEVICE_TYPE)
        made: torch.Tensor = getattr(torch, cls.__name__)(*args, **kwargs)
        return made.to(DEVICE_TYPE)

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == DEVICE_TYPE
            and instance.dtype == cls._held_dtype()
        )

    def _held_dtype(cls) -> torch.dtype:
        """The dtype of tensors made here: the device may store 64 bits as 32."""
        return torch.empty(0, dtype=cls.dtype, device=DEVICE_TYPE).dtype


def _are_values(args: tuple[Any, ...]) -> bool:
    """Whether this is a list of numbers, some of which may be tensors of the device."""
    return len(args) == 1 and isinstance(args[0], (list, tuple)) and type(args[0]) is not torch.Size


class FloatTensor(metaclass=_TensorType):
    """`torch.cuda.FloatTensor`."""

    dtype = torch.float32


class DoubleTensor(metaclass=_TensorType):
    """`torch.cuda.DoubleTensor`."""

    dtype = torch.float64


class HalfTensor(metaclass=_TensorType):
    """`torch.cuda.HalfTensor`."""

    dtype = torch.float16


class BFloat16Tensor(metaclass=_TensorType):
    """`torch.cuda.BFloat16Tensor`."""

    dtype = torch.bfloat16


class ByteTensor(metaclass=_TensorType):
    """`torch.cuda.ByteTensor`."""

    dtype = torch.uint8


class CharTensor(metaclass=_TensorType):
    """`torch.cuda.CharTensor`."""

    dtype = torch.int8


class ShortTensor(metaclass=_TensorType):
    """`torch.cuda.ShortTensor`."""

    dtype = torch.int16


class IntTensor(metaclass=_TensorType):
    """`torch.cuda.IntTensor`."""

    dtype = torch.int32


class LongTensor(metaclass=_TensorType):
    """`torch.cuda.LongTensor`."""

    dtype = torch.int64


class BoolTensor(metaclass=_TensorType):
    """`torch.cuda.BoolTensor`."""

    dtype = torch.bool


TYPES: dict[str, _TensorType] = {
    kind.__name__: kind
    for kind in (
        FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, ByteTensor, CharTensor, ShortTensor,
        IntTensor, LongTensor, BoolTensor,
    )
}  # fmt: skip


@overload
def cast(x: torch.Tensor, kind: Any) -> torch.Tensor: ...
@overload
def cast(x: torch.nn.Module, kind: Any) -> torch.nn.Module: ...
def cast(x: Any, kind: Any) -> Any:
    """What `x.type(kind)` means: ``x``, a tensor or a module, as another type.

    ``kind`` is a type of this module, a torch type (`torch.FloatTensor`), a dtype (the device stays
    as it is) or a name such as "torch.cuda.FloatTensor". Raises ValueError for another name.
    """
    if isinstance(x, torch.nn.Module):
        return x._apply(lambda tensor: cast(tensor, kind))
    if isinstance(kind, torch.dtype):
        return x.to(kind)
    return x.to(*_meaning(kind))


def _meaning(kind: Any) -> tuple[str, torch.dtype]:
    """The device and dtype that a type of this module, a torch type, or a name stands for."""
    if isinstance(kind, _TensorType):
        return DEVICE_TYPE, kind.dtype
    if kind is torch.Tensor:
        kind = torch.FloatTensor
    place, _, name = (
        kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    ).rpartition(".")
    if name not in TYPES or place not in ("torch", "torch.cuda", f"torch.{DEVICE_TYPE}"):
        raise ValueError(f"invalid type: {kind!r}")
    return "cpu" if place == "torch" else DEVICE_TYPE, TYPES[name].dtype


_default_device = "cpu"  # of `torch.Tensor(...)`


def set_default_tensor_type(kind: Any) -> None:
    """Let new tensors have this type from here on, also those of `torch.Tensor(...)`.

    ``kind``: as for ``cast``. torch.set_default_device alone doesn't affect `torch.Tensor`.
    """
    global _default_device
    device, dtype = _meaning(kind)
    torch.set_default_dtype(dtype)
    if torch.device(device).type == "cpu":
        _reset_default_device()
    else:
        torch.set_default_device(device)
    _default_device = device


def _reset_default_device() -> None:
    """A default device of "cpu" would also move what `torch.as_tensor` is given.

    torch 2.9: after `set_default_device(None)`, `get_default_device()` raises an AttributeError.
    """
    torch.set_default_device(None)
    del torch._GLOBAL_DEVICE_CONTEXT.device_context


def install(env: object = None) -> None:
    """Let `torch.Tensor(...)` follow ``set_default_tensor_type``, and accept lists of tensors.

    torchax 0.0.13 raises for `torch.Tensor([loss, other])`.
    """
    stock = torch.Tensor.__new__

    @functools.wraps(stock)
    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        if cls is not torch.Tensor or (args and isinstance(args[0], torch.Tensor)):
            return stock(cls, *args, **kwargs)
        dtype = torch.get_default_dtype()
        if torch.device(kwargs.get("device") or _default_device).type == DEVICE_TYPE:
            return next(kind for kind in TYPES.values() if kind.dtype == dtype)(*args, **kwargs)
        if _are_values(args) and not kwargs:
            return torch.tensor(args[0], dtype=dtype, device="cpu")
        return stock(cls, *args, **kwargs)

    torch.Tensor.__new__ = staticmethod(__new__)  # type: ignore[method-assign]
