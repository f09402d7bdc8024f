"""Modules and optimizers outside of a compiled step, with gradients: as programs of their own.

Each program runs on the CPU by torch and on the device, and gives the same numbers.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_between
from torch import Tensor, nn, optim
from tpu_runtime.distributed.ddp import Averaging

from tests.runtime.for_torchax.modules import STEP, agree, compiled, convnet, gradients, mlp, state
from tests.runtime.support import batch

tpu.setup()
pytestmark = pytest.mark.usefixtures("no_warnings")


@pytest.mark.parametrize(
    "make",
    thorough_between(
        3,
        [
            lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
            lambda p: optim.AdamW(p, 0.01, amsgrad=True),
            lambda p: optim.RMSprop(p, 0.01, centered=True),
            lambda p: optim.Adagrad(p, 0.01),
            lambda p: optim.NAdam(p, 0.01),
        ],
    ),
)
def test_training_as_it_is_written(make: Any) -> None:
    def program(device: str) -> list[Tensor]:
        model = convnet().to(device)
        optimizer = make(model.parameters())
        schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
        losses = []
        for number in range(8):
            x, y = batch(number, 6, 3, 8, 8).to(device), torch.arange(6).to(device) % 5
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss)
        if device == "jax":
            assert (compiled(model), compiled(optimizer, STEP)) == (1, 1)
        return [*losses, *state(model), *gradients(model)]

    agree(program)


class WithItsLoss(nn.Module):
    """As models of transformers do, it makes a new module for its loss in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(6, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        loss_fct = nn.CrossEntropyLoss()
        return loss_fct(nn.Dropout(0.0)(self.body(x)), y)


def test_a_module_that_is_made_in_a_call_keeps_nothing_from_being_compiled() -> None:
    def program(device: str) -> list[Tensor]:
        model = WithItsLoss().to(device)
        optimizer = optim.SGD(model.parameters(), 0.1)
        losses = []
        for number in range(4):
            x, y = batch(number, 4, 6).to(device), torch.arange(4).to(device) % 3
            optimizer.zero_grad()
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            losses.append(loss)
        if device == "jax":
            assert compiled(model) == 1
        return [*losses, *state(model)]

    agree(program)


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.extra = mlp(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> dict[str, Any]:
        h = self.body(x).relu()
        self.penalty = h.square().mean()
        logits = self.head(h)
        return {"logits": logits, "both": (h, logits.detach()), "extra": self.extra(h), "n": 3}


@pytest.mark.parametrize("used", ["logits", "extra", "penalty", "all"])
def test_several_results_of_which_some_are_used(used: str) -> None:
    def program(device: str) -> list[Tensor]:
        model, found = Several().to(device), []
        for number in range(4):
            out = model(batch(number, 5, 6).to(device))
            assert not out["both"][1].requires_grad and out["both"][0].requires_grad
            values = {"logits": out["logits"], "extra": out["extra"], "penalty": model.penalty}
            some = values.values() if used == "all" else [values[used]]
            model.zero_grad()
            torch.stack([v.square().mean() for v in some]).sum().backward()
            found += gradients(model)
        if device == "jax":  # that what it stores has a gradient shows later
            assert compiled(model) == (2 if used in ("penalty", "all") else 1)
        return found

    agree(program)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = mlp(3, 4, 1), mlp(3, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(x), self.critic(x)


def test_going_back_in_parts_that_share_nothing() -> None:
    """Each part is a graph of its own: no hook of the other one runs."""

    def program(device: str) -> list[Tensor]:
        model, found = TwoHeads().to(device), []
        calls = torch.zeros(6, len(list(model.parameters())))
        for i, parameter in enumerate(model.parameters()):
            parameter.register_post_accumulate_grad_hook(
                lambda _, i=i: calls[number].__setitem__(i, calls[number, i] + 1)
            )
        for number in range(6):
            actor, critic = model(batch(number, 5, 3).to(device))
            model.zero_grad()
            if number in (2, 5):
                (actor.square() * critic).mean().backward()
            else:
                actor.square().mean().backward()
                found += [*gradients(model), calls.clone()]
            if number in (3, 4):
                critic.mean().backward()
            found += [*gradients(model), calls.clone()]
        if device == "jax":
            assert compiled(model) == 1  # also while the critic has no gradient
        return found

    agree(program)


def test_ranks_await_a_gradient_that_a_compiled_model_does_not_bring() -> None:
    """Neither a gradient of before counts, nor that a hook of the parameter runs."""
    model = Several().to("jax")
    one_rank: Any = SimpleNamespace(size=lambda: 1)
    averaging = Averaging(model, list(model.parameters()), one_rank)
    for number in range(4):
        averaging.begin(averages=True)
        out = model(batch(number, 5, 6).to("jax"))
        (out["logits"].mean() + out["extra"].mean()).backward()
        averaging.average()
    assert compiled(model)
    averaging.begin(averages=True)
    model(batch(4, 5, 6).to("jax"))["logits"].mean().backward()
    averaging.average()
    with pytest.raises(RuntimeError, match=r"^extra\.weight, extra\.bias: no gradient since"):
        averaging.begin(averages=True)


class Codes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(4, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).argmax(1)


def test_a_call_whose_result_has_no_graph_leaves_gradients_alone() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = Codes().to(device), []
        for number in range(6):
            model.body(batch(number, 3, 4).to(device)).square().mean().backward()
            found += [model(batch(number, 3, 4).to(device)), *gradients(model)]
        if device == "jax":
            assert compiled(model) == 1
        return found

    agree(program)


@pytest.mark.thorough
def test_several_calls_before_one_backward_pass() -> None:
    """Statistics of BatchNorm move between them, as in a discriminator of real and fake images."""

    def program(device: str) -> list[Tensor]:
        model, found = convnet().to(device), []
        for number in range(3):
            real, fake = (model(batch(2 * number + i, 4, 3, 8, 8).to(device)) for i in (0, 1))
            (real.square().mean() + fake.abs().mean()).backward()
            found += [real, fake, *gradients(model), *state(model)]
        if device == "jax":
            assert compiled(model) == 1
        return found

    agree(program)


def test_a_weight_that_a_compiled_step_changes_before_its_gradient_raises() -> None:
    for device in ("cpu", "jax"):
        weight = nn.Parameter(batch(0, 3, 4).to(device))
        optimizer = optim.SGD([weight], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss = weight.square().sum()
            loss.backward(retain_graph=True)
            optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert compiled(optimizer, STEP) == 1


def test_accumulated_gradients() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = mlp(4, 5, 2).to(device), []
        optimizer = optim.Adam(model.parameters(), 0.01)
        for number in range(9):
            (model(batch(number, 3, 4).to(device)).square().mean() / 3).backward()
            if number % 3 == 2:
                found += gradients(model)
                optimizer.step()
                optimizer.zero_grad()
        return [*found, *state(model)]

    agree(program)


@pytest.mark.thorough
def test_gradients_of_inputs_through_a_frozen_model() -> None:
    def program(device: str) -> list[Tensor]:
        maker, judge = mlp(3, 8, 6).to(device), mlp(6, 8, 1).to(device).requires_grad_(False)
        found = []
        for number in range(5):
            maker.zero_grad()
            judge(maker(batch(number, 4, 3).to(device))).mean().backward()
            found += gradients(maker)
            image = batch(number + 50, 4, 6).to(device).requires_grad_()
            judge(image).square().sum().backward()
            assert image.grad is not None and next(judge.parameters()).grad is None
            found.append(image.grad)
        if device == "jax":
            assert (compiled(maker), compiled(judge)) == (1, 2)
        return found

    agree(program)


@pytest.mark.thorough
def test_two_optimizers_of_an_adversarial_pair() -> None:
    def program(device: str) -> list[Tensor]:
        maker, judge = mlp(3, 8, 6).to(device), mlp(6, 8, 1).to(device)
        optimizers = [optim.Adam(m.parameters(), 0.01, (0.5, 0.999)) for m in (maker, judge)]
        losses = []
        for number in range(6):
            real, noise = batch(number, 4, 6).to(device), batch(number + 9, 4, 3).to(device)
            fake = maker(noise)
            optimizers[0].zero_grad()
            loss = F.softplus(-judge(fake)).mean()
            loss.backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            against = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
            against.backward()
            optimizers[1].step()
            losses += [loss, against]
        return [*losses, *state(maker), *state(judge)]

    agree(program)


class Norms(nn.Module):
    """Its forward pass writes state that its result depends on, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8, bias=False))
        self.norm = nn.BatchNorm1d(8, affine=False)
        self.second = nn.utils.parametrizations.weight_norm(nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).tanh())


def test_a_gradient_that_is_differentiated() -> None:
    def program(device: str) -> list[Tensor]:
        judge = Norms().to(device)
        optimizer = optim.Adam(judge.parameters(), 0.01)
        losses = []
        for number in range(5):
            x = batch(number, 4, 6).to(device).requires_grad_()
            scores = judge(x)
            (gradient,) = torch.autograd.grad(scores.sum(), x, create_graph=number > 1)
            loss = scores.mean()
            if number > 1:
                loss = loss + 10 * (gradient.norm(dim=1) - 1).square().mean()
            else:
                loss = judge(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += [loss, gradient]
        return [*losses, *state(judge)]

    with pytest.warns(UserWarning, match="with gradients is not compiled.*again"):
        agree(program, 3e-5)


@pytest.mark.thorough
def test_what_is_differentiated_again_draws_the_same_numbers() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 1)).to("jax").train()
    x = batch(0, 4, 6).to("jax").requires_grad_()
    torch.manual_seed(5)
    model(x), model(x)  # the second one is compiled
    torch.manual_seed(5)
    out = model(x).sum()
    (plain,) = torch.autograd.grad(out, x, retain_graph=True)
    state_before = tpu.get_rng_state()
    with pytest.warns(UserWarning, match="again"):
        pass_again = torch.autograd.grad(out, x, create_graph=True)[0]
        model(x)
    assert torch.equal(plain.cpu(), pass_again.detach().cpu())
    torch.manual_seed(5)
    assert (out - model(x).sum()).abs() < 1e-5
    assert torch.equal(state_before.cpu(), tpu.get_rng_state().cpu())


def test_going_back_twice() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = mlp(4, 5, 3).to(device), []
        for number in range(4):
            x = batch(number, 4).to(device).requires_grad_()
            out = model(x)
            rows = [torch.autograd.grad(o, x, retain_graph=True)[0] for o in out]
            found.append(torch.stack(rows))
            out.sum().backward()
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                out.sum().backward()
        return found

    agree(program)


def test_weights_that_change_between_forward_and_second_derivative() -> None:
    model = mlp(3, 4, 1).to("jax")
    x = batch(0, 2, 3).to("jax").requires_grad_()
    out = [model(x).sum() for _ in range(3)][-1]
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out, x, create_graph=True)


def test_freezing_and_other_modes() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = convnet().to(device), []
        optimizer = optim.SGD(model.parameters(), 0.1)
        for number in range(12):
            model[0].requires_grad_(number % 6 > 2)
            model.train(number < 6)
            model.zero_grad()
            loss = model(batch(number, 5, 3, 8, 8).to(device)).square().mean()
            loss.backward()
            optimizer.step()
            found += [loss, *gradients(model)]
        return [*found, *state(model)]

    agree(program)
