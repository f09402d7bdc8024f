"""Loops as people and frameworks write them: recorded, they give the same numbers as eager."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint
from tpu_runtime.lazy import lazy_graph, lazy_programs

from tests.runtime.for_torchax.modules import convnet, gradients, mlp, state
from tests.runtime.support import batch as drawn

tpu.setup()

Loop = Callable[[str], list[Tensor]]
LOOPS: list[Loop] = []


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Each operator runs at once and alone."""
    lazy_graph.run()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TPU_RUNTIME_EAGER", "1")
        yield


def agree(loop: Loop, tolerance: float = 1e-5) -> None:
    """On the CPU, eager, and recorded; all tensors that it gives are the same."""
    torch.manual_seed(0)
    expected = loop("cpu")
    with eager():
        torch.manual_seed(0)
        at_once = loop("jax")
    lazy_programs._programs.clear()  # of earlier loops, which are done
    before = lazy_programs.record.calls
    torch.manual_seed(0)
    found = loop("jax")
    lazy_graph.run()
    assert lazy_programs.record.calls > before
    for a, b, c in zip(found, at_once, expected, strict=True):
        a, b, c = (x.detach().cpu().double() for x in (a, b, c))
        assert a.shape == b.shape == c.shape
        assert (a - b).abs().max() <= tolerance * (1e-3 + b.abs().max())
        assert (a - c).abs().max() <= tolerance * (1e-3 + c.abs().max())


def batch(number: int, *shape: int) -> Tensor:
    return drawn(number, *shape).to(torch.get_default_dtype())


def loop(function: Loop) -> Loop:
    LOOPS.append(function)
    return function


@loop
def clipping_and_a_schedule(device: str) -> list[Tensor]:
    model = convnet().to(device)
    optimizer = optim.AdamW(model.parameters(), 0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    found, total = [], torch.zeros((), device=device)
    for number in range(8):
        x, y = batch(number, 6, 3, 8, 8).to(device), torch.arange(6).to(device) % 5
        loss = F.cross_entropy(model(x), y)
        total += loss.detach()
        optimizer.zero_grad()
        loss.backward()
        found.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
        schedule.step()
        found.append(loss)
    return [total, *found, *state(model), *gradients(model)]


@loop
def clipped_gradients_of_an_embedding(device: str) -> list[Tensor]:
    """Which `.to(dtype)` returns, without a change: writes reach them as they are."""
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)).to(device)
    optimizer, words = optim.AdamW(model.parameters(), 0.01), torch.arange(6).to(device)
    for _ in range(3):
        loss = F.cross_entropy(model(words), words + 1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return [loss, *state(model), *gradients(model)]


@loop
def weighted(device: str) -> list[Tensor]:
    """By numbers of the step: a loss, and an average of the weights."""
    model, found = mlp(4, 5, 2).to(device), []
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = optim.SGD(model.parameters(), 0.1)
    for number in range(14):
        out, weight = model(batch(number, 3, 4).to(device)), 0.3 + number / 7
        loss = (out - weight).square().mean() * weight + (1 - weight) * out.abs().mean() / weight
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average, model.parameters(), strict=True):
                a.sub_((a - p) * (1 / (number + 2)))
        found.append(loss)
    return [*found, *average, *state(model)]


@loop
def a_closure_as_lightning_has(device: str) -> list[Tensor]:
    model, found = convnet().to(device), []
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for number in range(6):

        def closure(number: int = number) -> Tensor:
            loss = model(batch(number, 6, 3, 8, 8).to(device)).square().mean()
            found.append(loss.detach().clone())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            return loss  # type: ignore[no-any-return]

        found.append(optimizer.step(closure).detach())  # type: ignore[arg-type, attr-defined]
    return [*found, *state(model)]


def accumulation(device: str, read: str, to_none: bool) -> list[Tensor]:
    model, found = mlp(4, 5, 2).to(device), []
    optimizer = optim.Adam(model.parameters(), 0.01)
    for number in range(12):
        loss = model(batch(number, 3, 4).to(device)).square().mean() / 3
        if read == "loss":
            found.append(torch.tensor(loss.item()))
        loss.backward()
        if number % 3 == 2:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if read == "norm":
                found.append(torch.tensor(float(norm)))
            optimizer.step()
            found += gradients(model)
            optimizer.zero_grad(set_to_none=to_none)
    return [*found, *state(model)]


@loop
def accumulation_unread(device: str) -> list[Tensor]:
    return accumulation(device, "never", True)


@loop
def accumulation_of_which_the_loss_is_read(device: str) -> list[Tensor]:
    return accumulation(device, "loss", False)


@loop
def accumulation_of_which_the_norm_is_read(device: str) -> list[Tensor]:
    return accumulation(device, "norm", False)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight
        self.unused = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.words(x)
        return {"logits": self.head(h), "other": self.unused(h), "hidden": h}


@loop
def tied_weights_and_outputs_that_a_loss_ignores(device: str) -> list[Tensor]:
    model, found = Tied().to(device), []
    optimizer = optim.AdamW(model.parameters(), 0.01)
    words = torch.arange(10).reshape(2, 5).to(device) % 7
    for _ in range(5):
        out = model(words)
        loss = F.cross_entropy(out["logits"][:, :-1].reshape(-1, 7), words[:, 1:].reshape(-1))
        loss.backward()
        assert model.unused.weight.grad is None
        optimizer.step()
        optimizer.zero_grad()
        found += [loss, out["hidden"], out["logits"].argmax(-1)]
    return [*found, *state(model)]


@loop
def two_losses_and_a_model_called_again(device: str) -> list[Tensor]:
    model, found = mlp(4, 6, 2).to(device), []
    optimizer = optim.SGD(model.parameters(), 0.1)
    for number in range(6):
        optimizer.zero_grad()
        out, more = (model(batch(number + n, 3, 4).to(device)) for n in (0, 20))
        first, second = out[:, 0].square().mean(), (out[:, 1] + more[:, 0]).abs().mean()
        first.backward(retain_graph=True)
        second.backward()
        again = model(batch(number + 40, 3, 4).to(device)).mean()
        again.backward()
        optimizer.step()
        found += [first, second, again, *gradients(model)]
    return [*found, *state(model)]


@loop
def an_adversarial_pair(device: str) -> list[Tensor]:
    maker, judge = mlp(3, 8, 6).to(device), mlp(6, 8, 1).to(device)
    optimizers = [optim.Adam(m.parameters(), 0.01, (0.5, 0.999)) for m in (maker, judge)]
    losses = []
    for number in range(6):
        real, noise = batch(number, 4, 6).to(device), batch(number + 9, 4, 3).to(device)
        fake = maker(noise)
        judge.requires_grad_(False)
        loss = F.softplus(-judge(fake)).mean()
        loss.backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        judge.requires_grad_(True)
        against = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        against.backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        losses += [loss, against]
    return [*losses, *state(maker), *state(judge)]


@loop
def evaluation_in_between_and_frozen_layers(device: str) -> list[Tensor]:
    model, found = convnet().to(device), []
    model[0].requires_grad_(False)  # type: ignore[index]
    optimizer = optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    for number in range(8):
        x = batch(number, 5, 3, 8, 8).to(device)
        loss = model(x).square().mean()
        loss.backward()
        if number % 2:
            model.eval()
            with torch.no_grad():
                found.append(model(x))
            model.train()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss)
    return [*found, *state(model)]


class Again(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = mlp(4, 8, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(checkpoint(self.first, x, use_reentrant=False))  # type: ignore[no-any-return]


@loop
def activations_that_are_computed_again(device: str) -> list[Tensor]:
    model, found = Again().to(device), []
    optimizer = optim.AdamW(model.parameters(), 0.01)
    for number in range(5):
        optimizer.zero_grad()
        loss = model(batch(number, 3, 4).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss)
    return [*found, *state(model)]


@loop
def hooks(device: str) -> list[Tensor]:
    """On a result, where the gradient is changed and read, and on parameters, which step."""
    model, found = mlp(4, 5, 2).to(device), list[Tensor]()
    optimizers = {p: optim.SGD([p], 0.1) for p in model.parameters()}

    def keep(gradient: Tensor) -> None:
        found.append(gradient.clone())

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for number in range(5):
        out = model(batch(number, 3, 4).to(device))
        out.register_hook(lambda gradient: gradient * 0.5)
        out.register_hook(keep)
        if number == 2:
            for parameter in model.parameters():
                parameter.register_post_accumulate_grad_hook(step)
        loss = out.square().mean()
        loss.backward()
        found += [loss, *gradients(model)]
    return [*found, *state(model)]


@loop
def values_that_decide_and_gradients_that_are_written(device: str) -> list[Tensor]:
    model, found = mlp(4, 5, 1).to(device), []
    optimizer = optim.SGD(model.parameters(), 0.05)
    for number in range(5):
        x = batch(number, 3, 4).to(device).requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        loss = out.mean() * (1 + number / 7)
        if loss > 0:
            loss = loss * 2
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(0.5)
        optimizer.step()
        found += [loss, slope]
    return [*found, *state(model)]


@loop
def a_cell_for_each_word(device: str) -> list[Tensor]:
    model, found = mlp(8, 6, 4).to(device), []
    optimizer = optim.SGD(model.parameters(), 0.1)
    for number in range(4):
        hidden = torch.zeros(2, 4, device=device)
        for word in range(11):
            hidden = model(torch.cat([hidden, batch(number + word, 2, 4).to(device)], 1)).tanh()
        loss = hidden.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss)
    return [*found, *state(model)]


def bfloat16(device: str) -> list[Tensor]:
    model, losses = mlp(8, 16, 4).to(device), []
    optimizer = optim.AdamW(model.parameters(), 0.01)
    for number in range(6):
        optimizer.zero_grad()
        with tpu.autocast(device, dtype=torch.bfloat16):
            out = model(batch(number, 8, 8).to(device))
            loss = F.cross_entropy(out, torch.arange(8).to(device) % 4)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return [*losses, *state(model)]


def dropout(device: str) -> list[Any]:
    """The numbers of the device are not those of the CPU."""
    model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 2)).to(device)
    optimizer, found = optim.SGD(model.parameters(), 0.1), []
    for number in range(6):
        optimizer.zero_grad()
        loss = model(batch(number, 5, 6).to(device)).square().mean()
        loss.backward()
        if number % 2:
            found.append(torch.rand(2, device=device))
        optimizer.step()
        found.append(loss.detach())
    return [*found, tpu.get_rng_state(), *state(model)]
