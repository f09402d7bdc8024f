"""Settings that a schedule changes at every step are inputs of a program, as learning rates are."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tpu_runtime
from tiers import thorough_but
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from tpu_runtime.compilation.state_guards import KEPT

tpu_runtime.setup()

STEPS = 8


def one_cycle(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return OneCycleLR(optimizer, 0.1, total_steps=STEPS)


class DecaySchedule:
    """As DINO has it: the weight decay of one group follows a cosine, and is 0 at first."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.group, self.number = optimizer.param_groups[0], 0

    def step(self) -> None:
        self.number += 1
        self.group["weight_decay"] = 0.04 * (self.number - 1)


KINDS: dict[str, tuple[Any, dict[str, Any], Callable[..., Any]]] = {
    "betas": (torch.optim.AdamW, {"lr": 0.01}, one_cycle),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}, one_cycle),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, one_cycle),
    "decay": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.01}, DecaySchedule),
    "coupled": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}, DecaySchedule),
}


@pytest.mark.parametrize("name", thorough_but(["betas", "nesterov"], KINDS))
def test_a_schedule_of_settings_takes_few_programs(name: str) -> None:
    kind, given, schedule = KINDS[name]
    torch.manual_seed(0)
    x = torch.randn(6, 4)

    def train(model: nn.Module) -> torch.optim.Optimizer:
        device = next(model.parameters()).device
        optimizer: torch.optim.Optimizer = kind(model.parameters(), **given)
        scheduler = schedule(optimizer)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(x.to(device)).square().mean().backward()
            optimizer.step()
            scheduler.step()
        return optimizer

    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    expected = copy.deepcopy(model)
    train(expected)
    optimizer = train(model.to("jax"))
    for want, got in zip(expected.parameters(), model.parameters(), strict=True):
        assert (want - got.cpu()).abs().max().item() < 1e-6
    (part,) = vars(optimizer)[KEPT].values()
    assert part.why_eager == "" and part.compilations <= 3
