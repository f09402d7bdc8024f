"""Steps of training against the same ones on the CPU."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import tpu_runtime as tpu
from torch import Tensor, nn
from tpu_runtime.lazy import lazy_graph, lazy_programs

from tests.runtime.support import agree

tpu.setup()

STEPS = 7
Step = Callable[..., Any]
Compile = Callable[[Step], Step]


def labels(number: int, size: int = 8) -> Tensor:
    return torch.randint(5, (size,), generator=torch.Generator().manual_seed(number))


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5))


def compare(program: Callable[[str, Compile], tuple[list[float], nn.Module]]) -> int:
    """Run `program(device, compile)` on both; returns how many programs ran on the device."""
    lazy_graph.run()
    lazy_programs._programs.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
        warnings.filterwarnings("ignore", ".*its gradient is differentiated again")
        losses, model = program("jax", tpu.train_step)
    count = len(lazy_programs._programs)
    expected, reference = program("cpu", lambda function: function)
    agree(losses, expected)
    for (name, value), wanted in zip(
        model.state_dict().items(), reference.state_dict().values(), strict=True
    ):
        agree(value, wanted), name
    return count
