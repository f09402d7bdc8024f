"""Models whose gradients are programs, against the CPU."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn

tpu.setup()
pytestmark = pytest.mark.usefixtures("no_warnings")

Program = Callable[[str], list[Tensor]]
GRADIENTS = " with gradients"
STEP = ".step()"


def parts(owner: Any) -> dict[str, Any]:
    return vars(owner).get("_tpu_runtime_parts") or {}


def compiled(owner: Any, manner: str = GRADIENTS) -> int:
    part = parts(owner)[manner]
    assert not part.why_eager
    return int(part.compilations)


def agree(program: Program, tolerance: float = 1e-5) -> None:
    """Run it here and there; all tensors that it gives are the same."""
    torch.manual_seed(0)
    expected = program("cpu")
    torch.manual_seed(0)
    found = program("jax")
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach().cpu().double(), b.detach().double()
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * (1e-3 + b.abs().max())


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for here, there in itertools.pairwise(sizes):
        layers += [nn.Linear(here, there), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def state(model: nn.Module) -> list[Tensor]:
    return [t.clone() for t in model.state_dict().values()]


def gradients(model: nn.Module) -> list[Tensor]:
    return [torch.full((), 7.0) if p.grad is None else p.grad.clone() for p in model.parameters()]
