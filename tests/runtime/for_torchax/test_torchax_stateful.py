"""What changes when it is used is no constant of a program."""

import collections
import io
import itertools
import queue
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.modules import agree, state
from tests.runtime.support import batch


def numbers() -> Any:
    return iter(range(1, 100))


def filled() -> Any:
    found: queue.Queue[int] = queue.Queue()
    for number in range(1, 100):
        found.put(number)
    return found


def deque() -> Any:
    return collections.deque(range(1, 100))


def generator() -> Any:
    return (number for number in range(1, 100))


def text() -> Any:
    return io.StringIO("\n".join(map(str, range(1, 99))))


def drawn() -> Any:
    return torch.Generator().manual_seed(0)


# How the object is made, and how a forward pass uses it.
USES: dict[str, tuple[Any, Any]] = {
    "iterator": (numbers, next),
    "for": (numbers, lambda it: next(number for number, _ in zip(it, "a", strict=False))),
    "islice": (numbers, lambda it: next(itertools.islice(it, 1))),
    "generator": (generator, lambda it: it.__next__()),
    "in a list": (lambda: [numbers()], lambda its: next(its[0])),
    "deque": (deque, lambda found: found.popleft()),
    "queue": (filled, lambda found: found.get()),
    "file": (text, lambda file: float(file.readline())),
    "random.Random": (lambda: random.Random(0), lambda rng: rng.random()),
    "default_rng": (lambda: np.random.default_rng(0), lambda rng: rng.random()),
    "RandomState": (lambda: np.random.RandomState(0), lambda rng: rng.rand()),
    "torch.Generator": (drawn, lambda rng: torch.rand(1, generator=rng).item()),
}


class Uses(nn.Module):
    def __init__(self, made: Any, use: Any) -> None:
        super().__init__()
        self.linear, self.made, self.use = nn.Linear(3, 2), made, use

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.use(self.made)


class Given(Uses):
    def forward(self, x: Tensor, made: Any = None) -> Tensor:
        return self.linear(x) * self.use(made)


class Writes(nn.Module):
    """Changes a NumPy array of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.count = nn.Linear(3, 2), np.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.linear(x) * float(self.count[0])


def trained(model: nn.Module, device: str, *given: Any) -> list[Tensor]:
    model, losses = model.to(device), []
    optimizer = optim.SGD(model.parameters(), 1e-4)
    for number in range(5):
        optimizer.zero_grad()
        loss = model(batch(number, 4, 3).to(device), *given).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *state(model)]


pytestmark = pytest.mark.filterwarnings("ignore:.*is not compiled as a whole")


@pytest.mark.parametrize("name", USES)
def test_an_object_of_a_model_is_used_once_in_each_call(name: str) -> None:
    make, use = USES[name]
    agree(lambda device: trained(Uses(make(), use), device))


def test_an_argument_is_used_once_in_each_call() -> None:
    def program(device: str) -> list[Tensor]:
        made = numbers()
        return trained(Given(None, next), device, made)

    agree(program)


def test_a_numpy_array_that_a_model_changes() -> None:
    agree(lambda device: trained(Writes(), device))
