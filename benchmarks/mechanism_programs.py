"""The programs that mechanisms.py runs: each reports what it took, and its numbers."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from compiled_programs import counted

ROOT = Path(__file__).resolve().parents[1]
STEPS = 16
WARM = 6  # steps, before those that are measured
CASES = ("mlp", "convnet", "gpt", "unet", "mshnet")  # of compiled_step.py


@dataclass
class Ran:
    """CPU seconds of the first two steps, of a later one, programs compiled, and the numbers."""

    first: float
    step: float
    programs: int
    numbers: list[float]
    memory: int = 0  # bytes that the largest recorded program needs


Step = Callable[[int], list[float]]


def _case(name: str) -> Step:
    """A loop as people write it, on a model of compiled_step.py."""
    import step_models
    import torch

    torch.manual_seed(0)
    case = step_models.CASES[name]()
    model = case.model.to("jax")
    optimizer = step_models.adamw(model)
    batches = [tuple(x.to("jax") for x in case.batch()) for _ in range(4)]

    def step(number: int) -> list[float]:
        batch = batches[number % 4]
        optimizer.zero_grad()
        loss = case.loss(model(batch[0], *case.inputs), *batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return [loss.item()]

    return step


def _one_cycle() -> Step:
    """Learning rate and momentum change in each step."""
    import torch
    from step_models import images, normalized

    torch.manual_seed(0)
    layers = [*normalized(3, 16), *normalized(16, 32), torch.nn.AdaptiveAvgPool2d(1)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(32, 10)).to("jax")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)
    x, y = (tensor.to("jax") for tensor in images(16, 3, 32)())

    def step(_: int) -> list[float]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return [loss.item()]

    return step


def _by_adamw(model: Any, loss_of: Callable[[int], Any]) -> Step:
    """The usual step, for a loss of the step's number."""
    from step_models import adamw

    optimizer = adamw(model)

    def step(number: int) -> list[float]:
        optimizer.zero_grad()
        loss = loss_of(number)
        loss.backward()
        optimizer.step()
        return [loss.item()]

    return step


def _annealed() -> Step:
    """A model that is called with the weight of a loss, and the number of the step."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                *(torch.nn.Linear(64, 64) for _ in range(8)), torch.nn.Tanh()
            )

        def forward(self, x: torch.Tensor, weight: float, number: int) -> torch.Tensor:
            y = self.layers(x)
            return (y**2).mean() * weight + (y.abs().mean() if number > 3 else y.mean())

    torch.manual_seed(0)
    model, x = Model().to("jax"), torch.randn(32, 64).to("jax")
    return _by_adamw(model, lambda number: model(x, 0.1 * number, number))


def _weighted() -> Step:
    """A loss with a weight that changes in each step."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8))).to("jax")
    x = torch.randn(32, 64).to("jax")
    return _by_adamw(model, lambda number: model(x).square().mean() * (0.1 * number))


def _generating() -> Step:
    """transformers' `generate`, 32 tokens a step."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = LlamaConfig(
        vocab_size=256, num_attention_heads=4, max_position_embeddings=256, **shape
    )
    model = LlamaForCausalLM(config).eval().to("jax")
    prompt = torch.randint(3, 250, (2, 17)).to("jax")

    def step(_: int) -> list[float]:
        found = model.generate(prompt, max_new_tokens=32, do_sample=False, pad_token_id=0)
        return [float(x) for x in found.cpu().flatten()]

    return step


def _by_step(make: Callable[[], Step]) -> Callable[[], Ran]:
    def run() -> Ran:
        with counted() as programs:
            began = time.process_time()
            step, numbers, times = make(), [], []
            began = time.process_time()
            for number in range(STEPS):
                numbers += step(number)
                times.append(time.process_time())
        taken = [b - a for a, b in itertools.pairwise(times)]
        return Ran(times[1] - began, min(taken[WARM:]), len(programs), numbers)

    return run


def _training(name: str, optimizer: str) -> Callable[[], Ran]:
    """One of the programs that training_numbers.py compares with CPU torch."""

    def run() -> Ran:
        os.environ["STEPS"] = str(STEPS)
        sys.path[:0] = [str(ROOT / "benchmarks/training"), str(ROOT / "reference_apps/mshnet")]
        import programs
        import torch

        programs.device = torch.device("jax")
        times: dict[int, float] = {}
        seeded = programs.seeded

        def noting(number: int) -> Any:  # each step draws its batch first
            times.setdefault(number % 1000, time.process_time())
            return seeded(number)

        programs.seeded = noting
        with counted() as compiled:
            torch.manual_seed(7)
            losses, models = programs.PROGRAMS[name](programs.OPTIMIZERS[optimizer])
            state = programs.state_of(models)
        began = [*times.values()][: STEPS + 1]
        taken = [b - a for a, b in itertools.pairwise(began)]
        numbers = [*losses, *(float(abs(v.astype("float64")).sum()) for v in state.values())]
        return Ran(began[2] - began[0], min(taken[WARM:]), len(compiled), numbers)

    return run


PROGRAMS: dict[str, Callable[[], Ran]] = {
    **{name: _by_step(partial(_case, name)) for name in CASES},
    "one cycle": _by_step(_one_cycle),
    "annealed": _by_step(_annealed),
    "weighted": _by_step(_weighted),
    "generate": _by_step(_generating),
    **{
        f"{name}, {optimizer}": _training(name, optimizer)
        for name, optimizer in (
            ("lstm", "adamw"), ("vae", "adamw"), ("gan", "adamw"), ("wgan_gp", "adamw"),
            ("ddpm", "sgd"), ("contrastive", "rmsprop"), ("reinforce", "adamw"),
            ("metric_learning", "sgd"), ("cnn", "lbfgs"),
        )
    },
}  # fmt: skip
