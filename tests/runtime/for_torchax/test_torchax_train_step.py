"""Steps of training; run as tests/runtime/conftest.py says.

Each program runs on CPU torch, and on the device, where a step is one program: the same numbers.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_but
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.steps import Compiled
from tests.runtime.for_torchax.train_steps import STEPS, Compile, Step, compare, labels, mlp
from tests.runtime.support import agree, batch

tpu.setup()


OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.01, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, 0.01),
    "nadam": lambda p: optim.NAdam(p, 0.01),
    "adamax": lambda p: optim.Adamax(p, 0.01),
    "adagrad": lambda p: optim.Adagrad(p, 0.01, lr_decay=0.1),
    "adadelta": lambda p: optim.Adadelta(p),
    "rmsprop": lambda p: optim.RMSprop(p, 0.001, centered=True, momentum=0.5),
    "rprop": lambda p: optim.Rprop(p, 0.001),
}


@pytest.mark.parametrize("name", thorough_but(["sgd", "adamw"], OPTIMIZERS))
def test_optimizers_under_a_schedule_compile_nothing_further(name: str) -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = OPTIMIZERS[name](model.parameters())
        scheduler = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        @compile_
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        losses = []
        for number in range(STEPS):
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            losses.append(step(x, y).item())
            scheduler.step()
        return losses, model

    assert compare(program) <= 2  # the first one may also make the state


def test_batch_norm_and_a_last_batch_that_is_smaller() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5),
        ).to(device)  # fmt: skip
        optimizer = optim.SGD(model.parameters(), 0.1)

        @compile_
        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses = []
        for number in range(9):
            size = 3 if number % 3 == 2 else 8
            x, y = batch(number, size, 3, 8, 8).to(device), labels(number, size).to(device)
            losses.append(step(x, y).item())
        return losses, model

    assert compare(program) == 2


def test_accumulation_with_a_flag() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.Adam(model.parameters(), 0.01)

        @compile_
        def step(x: Tensor, y: Tensor, update: bool) -> Tensor:
            loss = F.cross_entropy(model(x), y) / 3
            loss.backward()
            if update:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        losses = []
        for number in range(18):
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            losses.append(step(x, y, number % 3 == 2).item())
        return losses, model

    compare(program)


def test_two_optimizers_a_penalty_and_an_average() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        torch.manual_seed(0)
        generator, critic = nn.Linear(4, 6).to(device), mlp().to(device)
        average = copy.deepcopy(generator)
        opt_g, opt_d = optim.Adam(generator.parameters()), optim.SGD(critic.parameters(), 0.05)

        @compile_
        def step(real: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
            fake = generator(noise)
            opt_d.zero_grad()
            mixed = (real + fake.detach()).requires_grad_()
            (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            d_loss = critic(fake.detach()).mean() - critic(real).mean() + slope.square().mean()
            d_loss.backward()
            opt_d.step()
            opt_g.zero_grad()
            g_loss = -critic(fake).mean()
            g_loss.backward()
            opt_g.step()
            with torch.no_grad():
                for mean, parameter in zip(
                    average.parameters(), generator.parameters(), strict=True
                ):
                    mean.mul_(0.9).add_(parameter, alpha=0.1)
            return d_loss, g_loss

        losses = []
        for number in range(STEPS):
            real, noise = batch(number, 8, 6).to(device), batch(number + 50, 8, 4).to(device)
            losses += [loss.item() for loss in step(real, noise)]
        return losses, nn.ModuleList([generator, critic, average])

    compare(program)


def test_frozen_parameters_a_new_rate_and_eval_choose_other_programs() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)).to(device)
        model[0].bias = None
        optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)

        @compile_
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        losses = []
        for number in range(12):
            if number in (4, 8):
                model[0].weight.requires_grad_(number == 8)
            if number == 6:
                model.eval()
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            losses.append(step(x, y).item())
        return losses, model

    compare(program)


def test_random_numbers_advance_and_follow_the_seed() -> None:
    model = mlp().to("jax")

    @Compiled
    def step(x: Tensor) -> Tensor:
        return F.dropout(model(x), 0.5)

    def draws() -> list[Tensor]:
        torch.manual_seed(3)
        return [step(batch(0, 8, 6).to("jax")).detach().cpu() for _ in range(5)]

    draws()
    first, second = draws(), draws()
    assert step.compilations
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert len({tuple(map(tuple, t.tolist())) for t in first}) == 5


def test_the_optimizers_state_is_saved_and_goes_on_on_the_cpu(tmp_path: Any) -> None:
    def train(model: nn.Module, optimizer: optim.Optimizer, step: Step, numbers: range) -> None:
        device = next(model.parameters()).device
        for number in numbers:
            step(model, optimizer, batch(number, 8, 6).to(device), labels(number).to(device))

    def one(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    reference = mlp()
    there = mlp().to("jax")
    optimizers = [optim.AdamW(m.parameters(), 0.01) for m in (reference, there)]
    train(reference, optimizers[0], one, range(8))
    train(there, optimizers[1], tpu.train_step(one), range(4))
    file = tmp_path / "checkpoint.pth"
    tpu.save({"model": there.state_dict(), "optimizer": optimizers[1].state_dict()}, file)
    here = mlp()
    optimizer = optim.AdamW(here.parameters(), 0.01)
    saved = torch.load(file, map_location="cpu")
    here.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    train(here, optimizer, one, range(4, 8))
    for found, expected in zip(here.parameters(), reference.parameters(), strict=True):
        agree(found, expected)


def test_what_is_held_elsewhere_survives_the_step() -> None:
    model = mlp().to("jax")
    optimizer = optim.SGD(model.parameters(), 0.1)

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = batch(0, 8, 6).to("jax")
    step(x), step(x)
    before = copy.deepcopy(model.state_dict())
    kept = model[0].weight.detach()
    snapshot = {name: value.clone() for name, value in model.state_dict().items()}
    gradient = model[0].weight.grad
    step(x)
    for name, value in before.items():
        assert torch.equal(value.cpu(), snapshot[name].cpu())
    assert torch.equal(kept.cpu(), model[0].weight.detach().cpu())  # an alias sees the write
    assert gradient is not None and model[0].weight.grad is not None
    assert torch.isfinite(model[0].weight.grad.cpu()).all()
