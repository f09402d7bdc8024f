"""Modules and optimizers outside of a compiled step, with gradients: as programs of their own.

Each program runs on the CPU by torch and on the device, and gives the same numbers.
"""

import copy
import itertools
import pickle
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_between
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint
from tpu_runtime.distributed import Averaging
from tpu_runtime.parts import _told

from tests.runtime.support import batch

tpu.setup()
Program = Callable[[str], list[Tensor]]
GRADIENTS, STEP = " with gradients", ".step()"


def parts(owner: Any) -> dict[str, Any]:
    return vars(owner).get("_tpu_runtime_parts") or {}


def compiled(owner: Any, manner: str = GRADIENTS) -> int:
    part = parts(owner)[manner]
    assert not part.why_eager
    return int(part.compilations)


def agree(program: Program, tolerance: float = 1e-5) -> None:
    """Run it here and there; all tensors that it gives are the same."""
    torch.manual_seed(0)
    expected = program("cpu")
    torch.manual_seed(0)
    found = program("jax")
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach().cpu().double(), b.detach().double()
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * (1e-3 + b.abs().max())


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    _told.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for here, there in itertools.pairwise(sizes):
        layers += [nn.Linear(here, there), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def state(model: nn.Module) -> list[Tensor]:
    return [t.clone() for t in model.state_dict().values()]


def gradients(model: nn.Module) -> list[Tensor]:
    return [torch.full((), 7.0) if p.grad is None else p.grad.clone() for p in model.parameters()]


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
            assert compiled(model) == 2  # at first the critic's result had no gradient
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
