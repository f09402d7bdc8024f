"""Loops at random, of what people do between a model's call and the next."""

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.lazy_loops import Loop, batch
from tests.runtime.for_torchax.modules import convnet, gradients, mlp, state

SHAPES = {"mlp": (5, 6), "convnet": (5, 3, 8, 8)}


class Round:
    """One round of a loop."""

    def __init__(self, model: nn.Module, x: Tensor, found: list[Tensor], total: Tensor) -> None:
        self.model, self.x, self.found, self.total = model, x, found, total
        self.out: Tensor = model(x)
        self.loss = self.out.square().mean()

    def keep(self, *values: Tensor) -> None:
        self.found += values

    def read(self) -> None:
        self.keep(torch.tensor(self.loss.item()))

    def detach(self) -> None:
        self.keep(self.loss.detach().clone(), self.out.detach())

    def add_up(self) -> None:
        self.total += self.loss.detach()

    def scale(self) -> None:
        self.loss = self.loss * 0.5 + 1

    def penalty(self) -> None:
        self.loss = self.loss + 0.01 * sum(p.square().sum() for p in self.model.parameters())

    def write(self) -> None:
        changed = self.out.clone()
        changed.mul_(2)
        changed[:, 0] = 1
        self.loss = self.loss + changed.mean()
        self.keep(changed)

    def write_to_a_view(self) -> None:
        copied = self.out.detach().clone()
        copied[1:].add_(1)
        copied.t()[0].zero_()
        self.keep(copied)

    def hook(self) -> None:
        self.out.register_hook(lambda gradient: gradient * 0.9)

    def call_again(self) -> None:
        self.loss = self.loss + self.model(self.x * 0.5).abs().mean()

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            self.keep(self.model(self.x))
        self.model.train()

    def parts_of_it(self) -> None:
        first, second = self.out.chunk(2, 1)
        both = torch.cat([second.exp(), first], 1).softmax(-1)
        self.loss = self.loss + both.max(1).values.mean() + self.out.std()

    def chosen(self) -> None:
        self.loss = self.loss + torch.where(self.out > 0, self.out, self.out * 0.1).mean()
        self.loss = self.loss + self.out[self.out > 0].sum() * 0.1

    def classes(self) -> None:
        labels = torch.arange(5).to(self.x.device) % 2
        self.loss = self.loss + F.cross_entropy(self.out, labels)
        self.keep((self.out.argmax(1) == labels).float().mean())

    def decide(self) -> None:
        if self.loss > 1:
            self.loss = self.loss / 2


class Ending:
    """What comes behind a backward pass."""

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer, found: list[Tensor]) -> None:
        self.model, self.optimizer, self.found = model, optimizer, found
        self.average = copy.deepcopy(model)

    def clip(self) -> None:
        self.found.append(nn.utils.clip_grad_norm_(self.model.parameters(), 0.3))

    def clip_values(self) -> None:
        nn.utils.clip_grad_value_(self.model.parameters(), 0.05)

    def read(self) -> None:
        self.found += gradients(self.model)

    @torch.no_grad()
    def write(self) -> None:
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)

    def step(self) -> None:
        self.optimizer.step()

    @torch.no_grad()
    def follow(self) -> None:
        for mine, theirs in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mine.lerp_(theirs, 0.1)

    @torch.no_grad()
    def shrink(self) -> None:
        for parameter in self.model.parameters():
            parameter.mul_(0.999)

    def keep_state(self) -> None:
        self.found += state(self.model)


BEFORE = [name for name, value in vars(Round).items() if callable(value) and name[0] != "_"]
BEHIND = [name for name, value in vars(Ending).items() if callable(value) and name[0] != "_"]
OPTIMIZERS: list[Callable[..., Any]] = [
    lambda p: optim.AdamW(p, 0.01),
    lambda p: optim.SGD(p, 0.05, momentum=0.9),
    lambda p: optim.RMSprop(p, 0.01),
]


def at_random(seed: int) -> Loop:
    def loop(device: str) -> list[Tensor]:
        chance = random.Random(seed)
        kind = chance.choice([*SHAPES])
        model = (mlp(6, 8, 4) if kind == "mlp" else convnet()).to(device)
        found: list[Tensor] = []
        total = torch.zeros((), device=device)
        ending = Ending(model, chance.choice(OPTIMIZERS)(model.parameters()), found)
        names = [n for n in BEFORE if n != "keep"]
        before = chance.sample(names, chance.randint(0, 4))
        behind = [n for n in BEHIND if chance.random() < (0.8 if n == "step" else 0.25)]
        accumulates, to_none = chance.choice([1, 1, 2]), chance.random() < 0.7
        for number in range(7):
            each = Round(model, batch(seed + number, *SHAPES[kind]).to(device), found, total)
            surprise = [chance.choice(names)] if chance.random() < 0.15 else []
            for name in (*before, *surprise):
                getattr(each, name)()
            each.loss.backward()
            if number % accumulates == accumulates - 1:
                for name in behind:
                    getattr(ending, name)()
                ending.optimizer.zero_grad(set_to_none=to_none)
            found.append(each.loss)
        return [*found, total, *state(model), *state(ending.average)]

    return loop
