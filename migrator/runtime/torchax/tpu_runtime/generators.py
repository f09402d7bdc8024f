"""Random numbers from an explicit generator.

torchax 0.0.13 takes only the seed of `generator=`, so every call gives the same numbers, silently.
A generator lives on the CPU here: its numbers are drawn there and moved. They are those of the
CPU, not those of a CUDA generator.
"""

from typing import Any

import torch
from torchax.tensor import Environment

from .calls import Function, is_device_tensor, move, names_device, native, patch, replaces

_CpuGenerator = torch._C.Generator


class _AnyGenerator(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _CpuGenerator)


class Generator(_CpuGenerator, metaclass=_AnyGenerator):
    """`torch.Generator`, on the CPU where the device is asked for: torchax 0.0.13 has none."""

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
    torch.Tensor.normal_,
    torch.Tensor.uniform_,
    torch.Tensor.random_,
    torch.Tensor.bernoulli_,
    torch.Tensor.exponential_,
    torch.Tensor.cauchy_,
    torch.Tensor.geometric_,
    torch.Tensor.log_normal_,
)
def _draw(env: Environment, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    on_device = any(is_device_tensor(arg) for arg in (*args, *kwargs.values()))
    if kwargs.get("generator") is None or not (on_device or names_device(kwargs.get("device"))):
        return NotImplemented
    cpu_args = tuple(arg.torch() if is_device_tensor(arg) else arg for arg in args)
    cpu_kwargs = {k: v.torch() if is_device_tensor(v) else v for k, v in kwargs.items()}
    if "device" in cpu_kwargs:
        cpu_kwargs["device"] = "cpu"
    drawn = move(env, native(function, cpu_args, cpu_kwargs))
    if not function.__name__.endswith("_"):
        return drawn
    with torch.no_grad(), env:
        return args[0].copy_(drawn)


@replaces(torch.normal)
def _normal(env: Environment, function: Function, args: Any, kwargs: dict[str, Any]) -> Any:
    """`torch.normal` on the device; torchax 0.0.13 raises, or forgets mean and deviation."""
    drawn = _draw(env, function, args, kwargs)
    if drawn is not NotImplemented:
        return drawn
    mean, std = [*args, kwargs.get("mean", 0.0), kwargs.get("std", 1.0)][:2]
    on_device = is_device_tensor(mean) or is_device_tensor(std)
    if not on_device and not names_device(kwargs.get("device")):
        return NotImplemented
    with env:
        if on_device:
            shape = torch.broadcast_tensors(
                *(torch.as_tensor(v, device="jax") for v in (mean, std))
            )
            return torch.randn_like(shape[0]) * std + mean
        size = args[2] if len(args) > 2 else kwargs["size"]
        return torch.randn(size, dtype=kwargs.get("dtype"), device="jax") * std + mean


def install(env: Environment) -> None:
    """Let `torch.Generator(device=...)` give a CPU generator."""
    try:
        _CpuGenerator("jax")
    except RuntimeError:
        patch(torch, Generator=Generator)
