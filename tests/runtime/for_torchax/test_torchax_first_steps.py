"""The first step of a loop: the same program as all later ones, if its code only computes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiers import thorough_but
from torch import Tensor, nn, optim
from torch.nn import functional as F
from tpu_runtime.compilation.compiled_function import UNUSED
from tpu_runtime.lazy import lazy_programs
from tpu_runtime.profiling import report

from tests.runtime.for_torchax.modules import agree, state
from tests.runtime.support import batch

pytestmark = pytest.mark.usefixtures("no_programs")


def layers(device: str) -> nn.Module:
    inner = [nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)]
    return nn.Sequential(*inner).to(device)


def adamw(parameters: Any) -> optim.Optimizer:
    return optim.AdamW(parameters, lr=1e-2)


def momentum(parameters: Any) -> optim.Optimizer:
    return optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True)


def rmsprop(parameters: Any) -> optim.Optimizer:
    return optim.RMSprop(parameters, lr=1e-3, momentum=0.5)


def stepped(optimizer: optim.Optimizer, loss: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("kind", thorough_but([adamw, momentum], [adamw, momentum, rmsprop]))
def test_all_steps_are_one_program(kind: Callable[[Any], optim.Optimizer]) -> None:
    def program(device: str) -> list[Tensor]:
        model, losses = layers(device), []
        optimizer = kind(model.parameters())
        for number in range(4):
            out = model(batch(number, 4, 6).to(device))
            loss = F.mse_loss(out, batch(9, 4, 2).to(device))
            losses.append(stepped(optimizer, loss))
            if device == "jax":
                assert len(lazy_programs._programs) == 1
        return [*losses, *state(model)]

    agree(program)


def test_a_step_that_clips_its_gradients_is_one_program() -> None:
    def program(device: str) -> list[Tensor]:
        model, losses = layers(device), []
        optimizer = adamw(model.parameters())
        for number in range(3):
            optimizer.zero_grad()
            loss = model(batch(number, 4, 6).to(device)).square().mean()
            loss.backward()
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
            optimizer.step()
            losses.append(loss.detach())
            if device == "jax":
                assert len(lazy_programs._programs) == 1
        return [*losses, *state(model)]

    agree(program)


def test_gradients_of_other_parameters_in_each_step_are_not_compiled_each_time() -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        models = nn.ModuleList(nn.Linear(3, size) for size in range(1, 9)).to(device)
        norms = []
        for number in range(8):
            models.zero_grad()
            models[number](batch(number, 4, 3).to(device)).square().mean().backward()
            norms.append(nn.utils.clip_grad_norm_(models.parameters(), 0.1))
        return [*norms, *state(models)]

    (clipping,) = [r for name, r in report._records.items() if name.startswith("clip_grad_norm_")]
    before = clipping.programs
    agree(program)
    assert clipping.programs - before <= UNUSED
    for _ in range(2):  # what occurs again is compiled, and leaves other tests none that is unused
        program("jax")
    assert clipping.programs - before == 8


class AtSeveralSizes(nn.Module):
    """A loss that is computed for an image, its half and its quarter."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x.sigmoid() * y).sum() / (x.sigmoid() + y).sum()


def test_a_loss_at_several_sizes_is_part_of_it() -> None:
    def program(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        model, criterion = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).to(device), AtSeveralSizes()
        optimizer, losses = adamw(model.parameters()), []
        for number in range(3):
            out = model(batch(number, 2, 1, 10, 10).to(device))
            loss = sum(criterion(each, each.detach().abs()) for each in halves(out))
            losses.append(stepped(optimizer, loss))
        if device == "jax":
            assert len(lazy_programs._programs) == 1
        return [*losses, *state(model)]

    agree(program)


def halves(image: Tensor) -> list[Tensor]:
    return [image, F.avg_pool2d(image, 2), F.avg_pool2d(image, 4)]


class WithEffects(nn.Module):
    """It counts, remembers and prints, once in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls, self.norms = nn.Linear(3, 2), 0, []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.norms.append(self.calls)
        print("call", self.calls)
        return self.linear(x)


@pytest.mark.filterwarnings("ignore:.*is not compiled as a whole")
def test_code_that_does_more_than_compute_does_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    model = WithEffects().to("jax")
    optimizer = adamw(model.parameters())
    for number in range(3):
        optimizer.zero_grad()
        model(batch(number, 4, 3).to("jax")).square().mean().backward()
        optimizer.step()
    assert (model.calls, model.norms) == (3, [1, 2, 3])
    assert capsys.readouterr().out == "call 1\ncall 2\ncall 3\n"


class Branching(nn.Module):
    """Another branch, which nothing has run before, counts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.wide = nn.Linear(3, 2), 0

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 4:
            self.wide += 1
        return self.linear(x)


@pytest.mark.filterwarnings("ignore:.*is not compiled as a whole")
def test_another_form_that_does_more_does_it_once() -> None:
    model = Branching().to("jax")
    for size in (4, 4, 5, 5, 4, 6):
        model(batch(0, size, 3).to("jax")).square().mean().backward()
    assert model.wide == 3


def test_a_mean_of_a_result_behind_the_backward_pass_is_part_of_its_program() -> None:
    model = layers("jax")
    optimizer = adamw(model.parameters())
    read, counts = [], []
    for number in range(5):
        before = lazy_programs.record.calls
        optimizer.zero_grad()
        out = model(batch(number, 4, 6).to("jax"))
        out.square().mean().backward()
        read.append(out.mean().item())  # reads forward and backward pass
        optimizer.step()
        counts.append(lazy_programs.record.calls - before)
    assert counts[2:] == [1, 1, 1]  # and the update alone, which is no program of several
    assert len(set(read)) == 5
