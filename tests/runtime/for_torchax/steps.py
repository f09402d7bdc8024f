"""Parts of the steps that these tests compile."""

import sys
from collections.abc import Callable
from typing import Any

import torch
import tpu_runtime as tpu
from torch import nn

from tests.runtime.support import agree, batch

tpu.setup()
internals = sys.modules["tpu_runtime.compilation.compiled_function"]


def on_device(number: int, *shape: int) -> Any:
    return batch(number, *shape).to("jax")


def linear(device: str = "jax") -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3).to(device)


def on_both(program: Callable[[str, Callable[..., Any]], list[Any]]) -> Any:
    """The same numbers on the CPU and compiled on the device; returns the compiled step."""
    made: list[Any] = []

    def compile_(function: Callable[..., Any]) -> Any:
        made.append(tpu.train_step(function))
        return made[-1]

    for found, expected in zip(program("jax", compile_), program("cpu", lambda f: f), strict=True):
        agree(found, expected)
    return made[0]
