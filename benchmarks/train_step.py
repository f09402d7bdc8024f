"""Milliseconds of a training step on torchax: compiled, operator by operator, and on CPU torch;
and of what a compiled step costs beside its program.

JAX_PLATFORMS=cpu python benchmarks/train_step.py   # in the environment of torchax
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from migrator.targets.copies import folder_to_import

sys.path.insert(0, str(folder_to_import("torchax")))

import torch
import torch.nn.functional as F
import tpu_runtime
from torch import nn

STEPS = 20


def mlp() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)), (16, 12)


def convnet() -> tuple[nn.Module, tuple[int, ...]]:
    layers = [nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)), (
        16, 3, 32, 32,
    )  # fmt: skip


def transformer() -> tuple[nn.Module, tuple[int, ...]]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    head = nn.Sequential(nn.Flatten(), nn.Linear(16 * 32, 5))
    return nn.Sequential(nn.TransformerEncoder(layer, 2), head), (8, 16, 32)


def deep() -> tuple[nn.Module, tuple[int, ...]]:
    """Many small parameters: 302, with 906 tensors of AdamW's state."""
    layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(75)]
    return nn.Sequential(*layers, nn.Linear(8, 5)), (4, 8)


def overhead(model: nn.Module, shape: tuple[int, ...]) -> tuple[float, float, int]:
    """A call of the step and of its program alone, and the tensors that go through it."""
    model = model.to("jax")
    optimizer = torch.optim.AdamW(model.parameters())

    @tpu_runtime.train_step
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = torch.randn(shape).to("jax"), torch.randint(5, shape[:1]).to("jax")
    for _ in range(3):
        step(x, y)
    (program,) = step._program.programs
    compiled, inside, whole = program.compiled, [], []

    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        result = compiled(*arguments)
        inside.append(1000 * (time.perf_counter() - began))
        return result

    program.compiled = timed
    for _ in range(STEPS):
        began = time.perf_counter()
        loss = step(x, y)
        whole.append(1000 * (time.perf_counter() - began))
        loss.item()
    return statistics.median(whole), statistics.median(inside), len(program.state)


def milliseconds(
    model: nn.Module, shape: tuple[int, ...], device: str, wrap: Callable[[Any], Any]
) -> tuple[float, float]:
    """The first two steps together, which compile, and the median of the later ones."""
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    taken = []
    for _ in range(STEPS):
        x, y = torch.randn(shape).to(device), torch.randint(5, shape[:1]).to(device)
        began = time.perf_counter()
        run(x, y).item()
        taken.append(1000 * (time.perf_counter() - began))
    return sum(taken[:2]), statistics.median(taken[3:])


def main() -> None:
    tpu_runtime.setup()
    print("ms a step, median (the first two, which compile)")
    for make in (mlp, convnet, transformer):
        torch.manual_seed(0)
        model, shape = make()
        cells = []
        for name, device, wrap in (
            ("compiled", "jax", tpu_runtime.train_step),
            ("operator by operator", "jax", lambda step: step),
            ("CPU torch", "cpu", lambda step: step),
        ):
            first, later = milliseconds(model, shape, device, wrap)
            cells.append(f"{name} {later:.1f} ({first:.0f})")
        print(f"{make.__name__:12}", " | ".join(cells), flush=True)
    for make in (mlp, deep):
        whole, inside, tensors = overhead(*make())
        print(f"{make.__name__:12} {whole:.2f} a call, {inside:.2f} its program, {tensors} tensors")


if __name__ == "__main__":
    main()
