"""Functions of torch that go to the GPU, or to the TPU's runtime."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import device_choice


def compile(model: Any = None, **kwargs: Any) -> Any:
    """`torch.compile`, as a call and as a decorator; on a TPU, XLA compiles by itself."""
    if device_choice.chosen_device() != "tpu":
        return torch.compile(model, **kwargs)
    tpu = device_choice.tpu()  # whose models keep the names that torch.compile gives to parameters
    return tpu.compile(model) if hasattr(tpu, "compile") else model or (lambda function: function)


def train_step(function: Callable[..., Any]) -> Callable[..., Any]:
    """A step that is compiled as a whole on a TPU; elsewhere it runs as it is written.

    Which it is is known when it is called, not where it is defined.
    """

    @functools.cache
    def chosen() -> Callable[..., Any]:
        compiles = (
            getattr(device_choice.tpu(), "train_step", None)
            if device_choice.chosen_device() == "tpu"
            else None
        )
        return compiles(function) if compiles is not None else function

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        return chosen()(*args, **kwargs)

    return step


def set_matmul_precision(precision: str) -> None:
    """`torch.set_float32_matmul_precision`."""
    if device_choice.chosen_device() == "tpu":
        device_choice.tpu().set_matmul_precision(precision)
    else:
        torch.set_float32_matmul_precision(precision)


def cast(tensor: torch.Tensor, kind: Any) -> torch.Tensor:
    """`tensor.type(kind)`, where ``kind`` may be a type that this runtime stands in for."""
    if device_choice.chosen_device() == "tpu":
        return device_choice.tpu().cast(tensor, kind)  # type: ignore[no-any-return]
    typed: torch.Tensor = tensor.type(kind)
    return typed


def set_default_tensor_type(kind: Any) -> None:
    """`torch.set_default_tensor_type`; where there is only the CPU, types of the GPU are its."""
    if device_choice.chosen_device() == "tpu":
        device_choice.tpu().set_default_tensor_type(kind)
    else:
        is_gpu = device_choice.chosen_device() == "cpu" and kind.__module__ == "torch.cuda"
        torch.set_default_tensor_type(getattr(torch, kind.__name__) if is_gpu else kind)
