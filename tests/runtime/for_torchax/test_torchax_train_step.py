"""Compiled training steps; run as tests/runtime/conftest.py says.

Each program runs on CPU torch, and on the device as one compiled step: the same numbers.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_but
from torch import Tensor, nn, optim

from tests.runtime.support import agree, batch

tpu.setup()

STEPS = 7
Step = Callable[..., Any]
Compile = Callable[[Step], Step]


def labels(number: int, size: int = 8) -> Tensor:
    return torch.randint(5, (size,), generator=torch.Generator().manual_seed(number))


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5))


def compare(program: Callable[[str, Compile], tuple[list[float], nn.Module]]) -> Any:
    """Run `program(device, compile)` on both; returns the compiled step."""
    made: list[Any] = []

    def compile_(function: Step) -> Step:
        made.append(tpu.train_step(function))
        return made[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
        losses, model = program("jax", compile_)
    expected, reference = program("cpu", lambda function: function)
    agree(losses, expected)
    for (name, value), wanted in zip(
        model.state_dict().items(), reference.state_dict().values(), strict=True
    ):
        agree(value, wanted), name
    (step,) = made
    return step


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
def test_optimizers_under_a_schedule_compile_once(name: str) -> None:
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

    assert compare(program).compilations == 1


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

    assert compare(program).compilations == 2


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

    assert compare(program).compilations == 1


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

    @tpu.train_step
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


# ---- what can not be compiled runs as before, and says why --------------------------------------


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


def reads(model: nn.Module, x: Tensor) -> Tensor:
    loss = model(x).square().mean()
    return loss * 2 if loss.item() > 1e9 else loss


def draws_on_the_cpu(model: nn.Module, x: Tensor) -> Tensor:
    return model(x + torch.rand(8, 6).to(x.device)).square().mean()


def plain(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


@pytest.mark.parametrize(
    ("make", "loss_of", "why"),
    [
        (mlp, reads, "reads a value of the device"),
        (mlp, draws_on_the_cpu, "draws random numbers on the CPU"),
        (Counting, plain, "counts or remembers in Python"),
    ],
)
def test_what_is_not_compiled_says_why_and_is_right(
    make: Callable[[], nn.Module], loss_of: Callable[[nn.Module, Tensor], Tensor], why: str
) -> None:
    results = []
    for device in ("cpu", "jax"):
        torch.manual_seed(0)
        model = make().to(device)
        optimizer = optim.SGD(model.parameters(), 0.01)

        def step(x: Tensor, model: Any = model, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss

        torch.manual_seed(1)
        if device == "cpu":
            results.append([step(batch(n, 8, 6)).item() for n in range(5)])
            continue
        compiled = tpu.train_step(step)
        losses = []
        with pytest.warns(UserWarning, match=why):
            for n in range(5):
                losses.append(compiled(batch(n, 8, 6).to(device)).item())
        assert compiled.compilations == 0
        if loss_of is not draws_on_the_cpu and make is not Counting:
            agree(losses, results[0])


def test_tensors_that_are_replaced_are_not_baked_in() -> None:
    model = mlp().to("jax")
    scale = torch.ones(()).to("jax")
    on_cpu = torch.ones(5)

    class Holder:
        shift = 0.0

    holder = Holder()
    holder.shift = 0.0

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        return (model(x) * scale + holder.shift) * on_cpu.to(x.device)

    x = batch(0, 8, 6).to("jax")
    plain_result = step(x).cpu()
    agree(step(x), plain_result)
    agree(step(x), plain_result)
    assert step.compilations == 1
    on_cpu.mul_(2)  # written in place
    agree(step(x), plain_result * 2)
    scale = torch.full((), 3.0).to("jax")  # another tensor under the same name
    agree(step(x), plain_result * 6)
    agree(step(x), plain_result * 6)
    holder.shift = 1.0  # a Python number
    agree(step(x), (plain_result * 3 + 1) * 2)


def test_a_number_that_changes_at_every_call_is_named() -> None:
    model = mlp().to("jax")

    @tpu.train_step
    def step(x: Tensor, epoch: int) -> Tensor:
        return model(x) * epoch

    x = batch(0, 8, 6).to("jax")
    with pytest.warns(UserWarning, match=r"step\(\) has run with 8 sets of shapes"):
        for epoch in range(10):
            agree(step(x, epoch), model(x) * epoch)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TPU_RUNTIME_EAGER", "1")
    yield


def test_the_switch_runs_steps_eagerly(eager: None) -> None:
    seen = []

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        seen.append(isinstance(x.jax(), jax.core.Tracer))
        return x * 2

    for _ in range(3):
        step(batch(0, 2).to("jax"))
    assert seen == [False] * 3


def test_a_step_on_the_cpu_stays_there() -> None:
    model = nn.LSTM(6, 5)
    optimizer = optim.SGD(model.parameters(), 0.1)

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = [step(batch(0, 3, 2, 6)) for _ in range(12)]
    assert losses[-1] < losses[0] and losses[0].device.type == "cpu"
    assert step.compilations == 0


def test_a_function_that_is_made_anew_keeps_its_programs() -> None:
    model = mlp().to("jax")
    optimizer = optim.SGD(model.parameters(), 0.1)

    def train(epoch: int) -> Any:
        @tpu.train_step
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        for number in range(3):
            step(batch(number, 8, 6).to("jax"))
        return step

    assert [train(epoch).compilations for epoch in range(3)] == [1, 1, 1]


# ---- numbers that change -------------------------------------------------------------------------


def test_a_number_that_is_compared_chooses_between_two_programs() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.SGD(model.parameters(), 0.1)

        @compile_
        def step(x: Tensor, y: Tensor, epoch: int) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if epoch > 5 or epoch == 0:
                loss = loss * 2
            loss.backward()
            optimizer.step()
            return loss

        losses = []
        for number in range(20):
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            losses.append(step(x, y, number // 2).item())
        return losses, model

    assert compare(program).compilations <= 3


def test_a_number_that_is_computed_with_is_a_tensor() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.Adam(model.parameters(), 0.01)
        weight, losses = 0.5, []

        @compile_
        def step(x: Tensor, y: Tensor, weight: float) -> Tensor:
            optimizer.zero_grad()
            out = model(x)
            loss = weight * F.cross_entropy(out, y) + out.square().mean() / (1 + weight)
            loss.backward()
            optimizer.step()
            return loss

        for number in range(12):
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            losses.append(step(x, y, weight).item())
            weight = 0.9 * weight + 0.1 * losses[-1]
        return losses, model

    assert compare(program).compilations == 1


def test_numbers_that_decide_or_count_go_by_their_values() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.SGD(model.parameters(), 0.1)

        @compile_
        def step(x: Tensor, y: Tensor, weight: float, repeat: int) -> tuple[Tensor, float]:
            optimizer.zero_grad()
            out = model(x)
            for _ in range(repeat):
                out = out + model(x)
            loss = F.cross_entropy(out, y) * (2 if weight > 0.5 else 1)
            loss.backward()
            optimizer.step()
            return loss, weight / 2

        losses: list[float] = []
        for number in range(9):
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            loss, half = step(x, y, 0.2 * (number % 4), number % 2)
            assert isinstance(half, float)
            losses += [loss.item(), half]
        return losses, model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(program)


def test_tied_weights_and_tensors_that_are_made_on_the_device() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(7, 6), nn.Linear(6, 7, bias=False)
            self.head.weight = self.tokens.weight
            self.places = nn.Embedding(9, 6)

        def forward(self, x: Tensor) -> Tensor:
            places = torch.arange(x.size(1), device=x.device)
            return self.head(self.tokens(x) + self.places(places))  # type: ignore[no-any-return]

    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        torch.manual_seed(0)
        model = Tied().to(device)
        assert model.head.weight is model.tokens.weight
        optimizer = optim.AdamW(model.parameters(), 0.01)

        @compile_
        def step(x: Tensor) -> Tensor:
            loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        losses = []
        for number in range(5):
            x = torch.randint(7, (4, 9), generator=torch.Generator().manual_seed(number))
            losses.append(step(x.to(device)).item())
        return losses, model

    step = compare(program)
    assert step.compilations == 1 and not step.why_eager


def test_rows_that_an_array_of_numpy_chooses() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.SGD(model.parameters(), 0.1)
        states, targets = batch(1, 32, 6).to(device), labels(2, 32).to(device)
        order = np.random.RandomState(0).permutation(32)

        @compile_
        def step(rows: np.ndarray[Any, Any]) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(states[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            return loss

        return [step(order[k : k + 4]).item() for k in range(0, 32, 4)], model

    assert compare(program).compilations == 1


def test_a_value_with_a_graph_that_is_detached_first() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        generator, critic = mlp().to(device), nn.Linear(5, 1).to(device)
        optimizer = optim.RMSprop(critic.parameters(), 0.01, momentum=0.9, foreach=True)

        @compile_
        def step(fake: Tensor) -> Tensor:
            loss = critic(fake.detach()).square().mean() + critic(fake.detach() + 1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(generator(batch(number, 8, 6).to(device))).item() for number in range(STEPS)]
        return losses, critic

    assert compare(program).compilations == 1


def test_a_graph_that_goes_on_into_a_step_keeps_its_gradient() -> None:
    def program(device: str) -> tuple[list[float], str]:
        encoder, head = mlp().to(device), nn.Linear(5, 1).to(device)
        optimizer = optim.SGD([*encoder.parameters(), *head.parameters()], 0.1)

        def step(features: Tensor) -> Tensor:
            loss = head(features).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run: Any = tpu.train_step(step) if device == "jax" else step
        losses = [run(encoder(batch(1, 8, 6).to(device))).item() for _ in range(STEPS)]
        return losses, getattr(run, "why_eager", "")

    with pytest.warns(UserWarning, match="is not compiled as a whole"):
        found, why = program("jax")
    assert "with a graph" in why
    agree(found, program("cpu")[0])
