"""Functions of torch that go to the GPU, or to the TPU's runtime."""

from typing import Any

import torch

from . import choice


def compile(model: Any = None, **kwargs: Any) -> Any:
    """`torch.compile`, as a call and as a decorator; on a TPU, XLA compiles by itself."""
    if choice.chosen() != "tpu":
        return torch.compile(model, **kwargs)
    return model if model is not None else lambda function: function


def set_matmul_precision(precision: str) -> None:
    """`torch.set_float32_matmul_precision`."""
    if choice.chosen() == "tpu":
        choice.tpu().set_matmul_precision(precision)
    else:
        torch.set_float32_matmul_precision(precision)


def cast(tensor: torch.Tensor, kind: Any) -> torch.Tensor:
    """`tensor.type(kind)`, where ``kind`` may be a type that this runtime stands in for."""
    if choice.chosen() == "tpu":
        return choice.tpu().cast(tensor, kind)  # type: ignore[no-any-return]
    return tensor.type(kind)
