"""Gradients of compiled models: states, hooks, shared results, optimizers of the user."""

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint

from tests.runtime.for_torchax.modules import STEP, agree, compiled, gradients, mlp, parts, state
from tests.runtime.support import batch

tpu.setup()
pytestmark = pytest.mark.usefixtures("no_warnings")


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.cell(x, hidden)
        return self.head(hidden), hidden


@pytest.mark.thorough
def test_a_state_that_goes_from_call_to_call() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = Cell().to(device), []
        for number in range(3):
            hidden, outs = torch.zeros(4, 5, device=device), []
            for position in range(4):
                out, hidden = model(batch(10 * number + position, 4, 3).to(device), hidden)
                outs.append(out)
            model.zero_grad()
            torch.stack(outs).square().mean().backward()
            found += gradients(model)
        if device == "jax":
            assert compiled(model) == 2  # with and without a graph that comes in
        return found

    agree(program)


def test_dropout_draws_what_it_would_draw() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2)).to("jax").train()
    x = batch(0, 8, 6).to("jax")

    def draws(call: Any) -> list[Tensor]:
        torch.manual_seed(3)
        found = []
        for _ in range(4):
            model.zero_grad()
            call(x).sum().backward()
            found += [g.cpu() for g in gradients(model)]
        return found

    expected = draws(lambda x: model[2](model[1](model[0](x))))
    draws(model)
    for found, wanted in zip(draws(model), expected, strict=True):
        assert (found - wanted).abs().max() < 1e-5
    assert compiled(model) == 1


def test_hooks() -> None:
    def program(device: str) -> list[Tensor]:
        found = []
        for kind in ("of a weight", "in the forward pass", "later"):
            model = mlp(3, 4, 2).to(device)
            if kind == "of a weight":
                model[0].weight.register_hook(lambda g: g * 2)
            if kind == "in the forward pass":
                model[0].register_forward_hook(lambda m, i, out: out * 3)
            for number in range(5):
                if kind == "later" and number == 3:
                    model[2].weight.register_hook(lambda g: g + 1)
                model.zero_grad()
                model(batch(number, 4, 3).to(device)).square().mean().backward()
                found += gradients(model)
            if device == "jax" and kind != "of a weight":
                assert compiled(model) == 1
        return found

    with pytest.warns(UserWarning, match="it has hooks on its backward pass"):
        agree(program)


class Watched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(3, 4, 2)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        h.register_hook(self.seen.append)
        return h.square()


class Aside(nn.Module):
    """Its result is one tensor twice, or two that share memory."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body, self.kind = mlp(3, 4), kind

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x).relu()
        if self.kind == "halves":
            return h[:, :2], h[:, 2:]
        return h, h if self.kind == "same" else h[:2]


def test_gradients_that_a_hook_keeps() -> None:
    def program(device: str) -> list[Tensor]:
        model = Watched().to(device)
        for number in range(4):
            model(batch(number, 4, 3).to(device)).sum().backward()
        return [*model.seen, *gradients(model)]

    with pytest.warns(UserWarning, match="Watched with gradients is not compiled"):
        agree(program)


@pytest.mark.parametrize("kind", ["same", "halves"])
def test_results_that_are_one_tensor(kind: str) -> None:
    def program(device: str) -> list[Tensor]:
        model, found = Aside(kind).to(device), []
        for number in range(4):
            first, second = model(batch(number, 4, 3).to(device))
            first.mul_(2)
            found += [first.clone(), second.clone()]
        if device == "jax":
            assert compiled(model) == 1
        return found

    agree(program)


def test_results_that_share_memory() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = Aside("part").to(device), []
        for number in range(4):
            with torch.no_grad():
                first, second = model(batch(number, 4, 3).to(device))
                first.mul_(2)
            found += [first.clone(), second.clone()]
        return found

    with pytest.warns(UserWarning, match="it returns tensors that share memory"):
        agree(program)


def test_checkpoints_inside_and_outside() -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = mlp(3, 6, 4), mlp(4, 5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(checkpoint(self.first, x, use_reentrant=False))

    def program(device: str) -> list[Tensor]:
        inside, outside, found = Inside().to(device), mlp(2, 5, 2).to(device), []
        for number in range(4):
            inside.zero_grad(), outside.zero_grad()
            h = inside(batch(number, 4, 3).to(device))
            checkpoint(outside, h, use_reentrant=False).square().mean().backward()
            found += [*gradients(inside), *gradients(outside)]
        if device == "jax":
            assert compiled(inside) == 1
        return found

    agree(program)


def test_functions_of_torch_func_and_fast_weights() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = mlp(3, 4, 1).to(device), []
        for number in range(4):
            x = batch(number, 5, 3).to(device)
            fast = dict(model.named_parameters())
            for _ in range(2):
                loss = torch.func.functional_call(model, fast, (x,)).square().mean()
                steps = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {k: v - 0.1 * g for (k, v), g in zip(fast.items(), steps, strict=True)}
            model.zero_grad()
            torch.func.functional_call(model, fast, (x,)).square().mean().backward()
            found += gradients(model)
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agree(program)


def test_copies_and_files() -> None:
    model = mlp(3, 4, 1).to("jax")
    optimizer = optim.Adam(model.parameters(), 0.01)
    for number in range(3):
        model(batch(number, 2, 3).to("jax")).sum().backward()
        optimizer.step()
    assert compiled(model) == compiled(optimizer, STEP) == 1
    other = copy.deepcopy(model)
    assert not parts(other) and not parts(pickle.loads(pickle.dumps(model)))
    assert torch.equal(other(batch(9, 2, 3).to("jax")), model(batch(9, 2, 3).to("jax")))
    assert not parts(copy.deepcopy(optimizer))
    assert not parts(pickle.loads(pickle.dumps(optimizer)))


class Counting(optim.Optimizer):
    """A user's own, which counts in Python."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    p.add_(p.grad, alpha=-group["lr"] / state["step"])


def test_optimizers_of_the_user() -> None:
    def program(device: str) -> list[Tensor]:
        model = mlp(3, 4, 1).to(device)
        optimizer = Counting(model.parameters(), 0.1)
        for number in range(5):
            model.zero_grad()
            model(batch(number, 2, 3).to(device)).square().mean().backward()
            optimizer.step()
        return state(model)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agree(program)


@pytest.mark.thorough
def test_an_optimizer_that_is_changed() -> None:
    def program(device: str) -> list[Tensor]:
        model, found = mlp(3, 4, 4, 1).to(device), []
        optimizer = optim.AdamW(
            [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.1}], 0.01
        )
        saved = None
        for number in range(14):
            if number == 4:
                saved = copy.deepcopy(optimizer.state_dict())
            if number == 6:
                optimizer.load_state_dict(saved)
            if number == 8:
                optimizer.param_groups[0]["weight_decay"] = 0.5
            if number == 10:
                optimizer.add_param_group({"params": model[4].parameters()})
            optimizer.param_groups[0]["lr"] *= 0.9
            optimizer.zero_grad(set_to_none=number % 2 == 0)
            out = model(batch(number, 2, 3).to(device))
            (model[0](batch(number, 2, 3).to(device)) if number == 12 else out).sum().backward()
            optimizer.step()
            found += state(model)
        return found

    agree(program)


def test_a_closure_and_a_step_without_gradients() -> None:
    def program(device: str) -> list[Tensor]:
        model = mlp(3, 4, 1).to(device)
        optimizer = optim.LBFGS(model.parameters(), max_iter=3)
        plain = optim.SGD(model.parameters(), 0.1)
        x = batch(0, 4, 3).to(device)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        losses = [torch.as_tensor(optimizer.step(closure)) for _ in range(3)]
        for _ in range(3):
            with torch.no_grad():
                plain.step()
        return [*losses, *state(model)]

    agree(program, 1e-4)


def test_autocast_and_a_scaler() -> None:
    def program(device: str) -> list[Tensor]:
        model = mlp(8, 16, 4).to(device)
        optimizer, losses = optim.SGD(model.parameters(), 0.1), []
        for number in range(4):
            optimizer.zero_grad()
            manner = tpu.autocast if device == "jax" else torch.autocast
            with manner("cpu" if device == "cpu" else "jax", dtype=torch.bfloat16):
                loss = model(batch(number, 4, 8).to(device)).float().square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss)
            assert all(p.grad.dtype == torch.float32 for p in model.parameters())
        return [*losses, *state(model)]

    agree(program, 2e-2)
