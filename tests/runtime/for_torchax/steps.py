"""Functions and steps that these tests compile."""

import sys
from collections.abc import Callable
from typing import Any

import torch
import tpu_runtime as tpu
from torch import nn
from tpu_runtime.lazy import lazy_graph, lazy_programs

from tests.runtime.for_torchax.modules import parts
from tests.runtime.support import agree, batch

tpu.setup()
internals = sys.modules["tpu_runtime.compilation.compiled_function"]


def on_device(number: int, *shape: int) -> Any:
    return batch(number, *shape).to("jax")


def linear(device: str = "jax") -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3).to(device)


class Compiled(nn.Module):
    """A function as a model, which the runtime compiles; so whatever it names is part of it."""

    def __new__(cls, function: Callable[..., Any]) -> "Compiled":
        return super().__new__(type("Compiled", (cls,), {}))  # there is a warning for each class

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def compilations(self) -> int:
        """How many programs were compiled."""
        return sum(part.compilations for part in parts(self).values())

    @property
    def why_eager(self) -> str:
        """Why it is not compiled, "" if it is."""
        return "".join(part.why_eager for part in parts(self).values())


def on_both(program: Callable[[str, Callable[..., Any]], list[Any]]) -> Compiled:
    """The same numbers on the CPU and compiled on the device; returns the compiled function."""
    made: list[Compiled] = []

    def compile_(function: Callable[..., Any]) -> Compiled:
        made.append(Compiled(function))
        return made[-1]

    for found, expected in zip(program("jax", compile_), program("cpu", lambda f: f), strict=True):
        agree(found, expected)
    return made[0]


def programs_of(program: Callable[[str], list[Any]]) -> int:
    """The same numbers on the CPU and on the device; returns how many programs ran there."""
    lazy_graph.run()
    lazy_programs._programs.clear()
    found = program("jax")
    count = len(lazy_programs._programs)
    for one, expected in zip(found, program("cpu"), strict=True):
        agree(one, expected)
    return count
