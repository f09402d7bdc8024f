"""Loops as people write them, whose steps must not be compiled again once they are warm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from step_models import Batch, adamw, images, normalized
from torch import Tensor, nn

Loop = Callable[[], Callable[[int], None]]  # makes what trains one round


def small() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*normalized(3, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = model.append(nn.Linear(8, 10)).to("jax")
    return model, adamw(model)


def batch_of(size: int) -> Batch:
    return tuple(tensor.to("jax") for tensor in images(size, 3, 16)())


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """The usual step."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def scheduler() -> Callable[[int], None]:
    model, optimizer = small()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    step = step_of(model, optimizer)

    def once(number: int) -> None:
        step(*batch_of(8)).item()
        schedule.step()

    return once


def accumulation() -> Callable[[int], None]:
    model, optimizer = small()

    def step(x: Tensor, y: Tensor, update: bool) -> Tensor:
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if update:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return lambda number: (step(*batch_of(8), number % 2 == 1).item(), None)[1]


def partial_batch() -> Callable[[int], None]:
    step = step_of(*small())

    def once(number: int) -> None:
        step(*batch_of(5 if number % 4 == 3 else 8)).item()

    return once


def ema(inside: bool) -> Loop:
    def make() -> Callable[[int], None]:
        model, optimizer = small()
        average = copy.deepcopy(model)

        @torch.no_grad()
        def follow() -> None:
            for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.99).add_(parameter, alpha=0.01)
            for mean, buffer in zip(average.buffers(), model.buffers(), strict=True):
                mean.copy_(buffer)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if inside:
                follow()
            return loss

        def once(number: int) -> None:
            step(*batch_of(8)).item()
            if not inside:
                follow()

        return once

    return make


def two_optimizers() -> Callable[[int], None]:
    generator, critic = nn.Linear(6, 10).to("jax"), nn.Linear(10, 1).to("jax")
    opt_g, opt_c = adamw(generator), adamw(critic)

    def step(noise: Tensor, real: Tensor) -> Tensor:
        fake = generator(noise)
        opt_c.zero_grad()
        difference = critic(fake.detach()).mean() - critic(real).mean()
        difference.backward()
        opt_c.step()
        opt_g.zero_grad()
        loss = -critic(fake).mean()
        loss.backward()
        opt_g.step()
        return difference

    def once(number: int) -> None:
        step(torch.randn(8, 6).to("jax"), torch.randn(8, 10).to("jax")).item()

    return once


LOOPS: dict[str, Loop] = {
    "a scheduler that changes lr at every step": scheduler,
    "gradient accumulation, by a bool": accumulation,
    "a last partial batch": partial_batch,
    "an EMA of the weights, within the step": ema(inside=True),
    "an EMA of the weights, after the step": ema(inside=False),
    "two optimizers": two_optimizers,
}
