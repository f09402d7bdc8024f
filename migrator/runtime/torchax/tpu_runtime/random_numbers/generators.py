"""Random numbers from an explicit generator.

torchax 0.0.13 only uses the seed of `generator=`, so every call silently gives the same numbers.
A generator is on the CPU here: its numbers are drawn there and moved. They are those of the
CPU, not those of a CUDA generator.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torchax.ops.ops_registry import Operator
from torchax.tensor import Environment, Tensor

from ..device import DEVICE_TYPE
from ..dispatch.calls import Function, is_device_tensor, move, names_device, native, patch, replaces
from . import draws

_CpuGenerator = torch._C.Generator


class _AnyGenerator(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _CpuGenerator)


class Generator(_CpuGenerator, metaclass=_AnyGenerator):
    """`torch.Generator`, on the CPU if the device is requested: torchax 0.0.13 has none."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _CpuGenerator("cpu" if names_device(device) else device)


@replaces(
    torch.rand,
    torch.randn,
    torch.randint,
    torch.randperm,
    torch.normal,
    torch.bernoulli,
    torch.multinomial,
    torch.poisson,
    torch.Tensor.bernoulli,
    torch.Tensor.multinomial,
)
def _draw(env: Environment, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    on_device = any(is_device_tensor(arg) for arg in (*args, *kwargs.values()))
    if not on_device and not names_device(kwargs.get("device")):
        return NotImplemented
    if kwargs.get("generator") is None and function is not torch.poisson:  # torchax has no poisson
        return NotImplemented
    cpu_args = tuple(arg.torch() if is_device_tensor(arg) else arg for arg in args)
    cpu_kwargs = {k: v.torch() if is_device_tensor(v) else v for k, v in kwargs.items()}
    if "device" in cpu_kwargs:
        cpu_kwargs["device"] = "cpu"
    return move(env, native(function, cpu_args, cpu_kwargs))


@replaces(torch.normal)
def _normal(env: Environment, function: Function, args: Any, kwargs: dict[str, Any]) -> Any:
    """`torch.normal` on the device; torchax 0.0.13 raises, or ignores mean and deviation."""
    drawn = _draw(env, function, args, kwargs)
    if drawn is not NotImplemented:
        return drawn
    given = dict(zip(("mean", "std", "size"), args, strict=False)) | kwargs
    mean, std = given.get("mean", 0.0), given.get("std", 1.0)
    tensors = [value for value in (mean, std) if isinstance(value, torch.Tensor)]
    if not any(map(is_device_tensor, tensors)) and not names_device(kwargs.get("device")):
        return NotImplemented
    if not isinstance(std, torch.Tensor) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    with env:
        if tensors:
            size = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
            dtype: Any = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        else:
            size, dtype = given["size"], kwargs.get("dtype")
        drawn = torch.randn(size, dtype=dtype, device="jax") * std + mean
        return drawn if kwargs.get("out") is None else kwargs["out"].copy_(drawn)


@replaces(torch.rand_like, torch.randn_like, torch.randint_like)
def _like(env: Environment, function: Function, args: Any, kwargs: dict[str, Any]) -> Any:
    """Those for another device are drawn there.

    torchax 0.0.13 gives CPU tensors for `rand_like`, and float32 for `randn_like`.
    """
    tensor: Any = args[0] if args else kwargs["input"]
    if not is_device_tensor(tensor):
        return NotImplemented
    made = {name: value for name, value in kwargs.items() if name not in ("input", "memory_format")}
    made["dtype"] = kwargs.get("dtype") or tensor.dtype
    device = made.setdefault("device", DEVICE_TYPE) or DEVICE_TYPE
    if not names_device(device):
        there = native(torch.empty, (tensor.shape,), {"dtype": tensor.dtype, "device": device})
        return native(function, (there, *args[1:]), made)
    if function is torch.randint_like:
        return NotImplemented
    draw = torch.rand if function is torch.rand_like else torch.randn
    with env:
        return draw(tensor.shape, **made | {"device": device})


_FILLING = "normal_ uniform_ random_ bernoulli_ exponential_ cauchy_ geometric_ log_normal_"


def _fill(env: Environment, name: str) -> Function:
    """An ATen operator that fills a tensor with random numbers.

    torchax 0.0.13: `exponential_` does nothing, `random_()` gives zeros, `normal_(mean, std)` and
    `bernoulli_(tensor)` raise, and a generator gives the same numbers every time.
    """

    def fill(tensor: Any, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
        shape, dtype = tuple(tensor.shape), tensor.jax().dtype
        of_key = _BY_KEY.get(name)
        numbers = of_key and _numbers(args, kwargs, of_key.defaults)
        fits = of_key and (tensor.is_floating_point() or of_key.of_integers)
        if of_key and fits and numbers is not None and generator is None:
            drawn = of_key.draw(env.get_and_rotate_prng_key(), shape, dtype, *numbers)
        else:
            cpu = native(torch.empty, (shape,), {"dtype": tensor.dtype, "device": "cpu"})
            args = tuple(arg.torch() if is_device_tensor(arg) else arg for arg in args)
            kwargs["generator"] = generator
            drawn = env.t2j_copy(native(getattr(torch.Tensor, name), (cpu, *args), kwargs))
        if is_device_tensor(tensor):
            torch.ops.aten.copy_(tensor, Tensor(drawn.astype(dtype), env))
        return tensor

    return fill


def _all_forms(packet: Any) -> set[Any]:
    return {packet, *(getattr(packet, overload) for overload in packet.overloads())}


class _Distribution(NamedTuple):
    """How a tensor is filled: from a key, a shape, a dtype and the distribution's parameters."""

    defaults: tuple[tuple[str, Any], ...]
    draw: Callable[..., Any]
    of_integers: bool = False  # also fills these


_BY_KEY = {
    "normal_": _Distribution((("mean", 0.0), ("std", 1.0)), draws.normal),
    "uniform_": _Distribution((("from", 0.0), ("to", 1.0)), draws.uniform),
    "bernoulli_": _Distribution((("p", 0.5),), draws.bernoulli, True),
    "exponential_": _Distribution((("lambd", 1.0),), draws.exponential),
    "cauchy_": _Distribution((("median", 0.0), ("sigma", 1.0)), draws.cauchy),
    "log_normal_": _Distribution((("mean", 1.0), ("std", 2.0)), draws.log_normal),
    "geometric_": _Distribution((("p", None),), draws.geometric, True),
    "random_": _Distribution((), draws.any_integers, True),
}


def _numbers(args: Any, kwargs: Any, defaults: Any) -> list[Any] | None:
    """Parameters given by position, by name, or not at all; None if one is on the CPU."""
    numbers = [
        *(kwargs.get(name, default) for name, default in defaults[len(args) :]),
    ]
    numbers = [arg.jax() if is_device_tensor(arg) else arg for arg in (*args, *numbers)]
    return None if any(isinstance(number, torch.Tensor) for number in numbers) else numbers


def install(env: Environment) -> None:
    """Replace operators that fill tensors; `torch.Generator(device=...)` gives a CPU generator."""
    for name in _FILLING.split():
        packet = getattr(torch.ops.aten, name)
        for key in [key for key in env._ops if key in _all_forms(packet)]:
            del env._ops[key]
        env._ops[packet] = Operator(
            packet, _fill(env, name), is_jax_function=False, is_user_defined=True, needs_env=False,
            is_view_op=True,
        )  # fmt: skip
    try:
        _CpuGenerator("jax")
    except RuntimeError:
        patch(torch, Generator=Generator)
