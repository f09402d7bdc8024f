"""Models that cannot be compiled run as before, and say why; numbers that change."""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.steps import Compiled
from tests.runtime.for_torchax.train_steps import STEPS, Compile, compare, labels, mlp
from tests.runtime.support import agree, batch

tpu.setup()


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


def branches(model: nn.Module, x: Tensor) -> Tensor:
    loss = model(x).square().mean()
    if loss > 1e9:
        return loss * 2
    return loss


def draws_on_the_cpu(model: nn.Module, x: Tensor) -> Tensor:
    return model(x + torch.rand(8, 6).to(x.device)).square().mean()


def plain(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


@pytest.mark.parametrize(
    ("make", "loss_of", "why"),
    [
        (mlp, reads, r"reads a value of the device \(\S+steps.py:\d+: return loss \* 2 if loss.it"),
        (mlp, branches, r"reads a value of the device \(\S+steps.py:\d+: if loss > 1e9:\)"),
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

        forward = Compiled(functools.partial(loss_of, model))

        def step(x: Tensor, forward: Any = forward, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = forward(x)
            loss.backward()
            optimizer.step()
            return loss

        torch.manual_seed(1)
        if device == "cpu":
            results.append([step(batch(n, 8, 6)).item() for n in range(5)])
            continue
        losses = []
        with pytest.warns(UserWarning, match=why):
            for n in range(5):
                losses.append(step(batch(n, 8, 6).to(device)).item())
        assert forward.compilations == 0
        if loss_of is not draws_on_the_cpu and make is not Counting:
            agree(losses, results[0])


@pytest.mark.parametrize("calls", [0, 3])
def test_an_error_of_a_step_is_shown_alone(calls: int) -> None:
    model = mlp().to("jax")

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss if x.shape[0] == 8 else loss + x.reshape(7)

    for n in range(calls):
        step(batch(n, 8, 6).to("jax"))
    with (
        warnings.catch_warnings(),
        pytest.raises(RuntimeError, match="is invalid") as raised,
    ):
        warnings.simplefilter("ignore")
        step(batch(0, 5, 6).to("jax"))
    assert raised.value.__context__ is None


def test_tensors_that_are_replaced_are_not_baked_in() -> None:
    model = mlp().to("jax")
    scale = torch.ones(()).to("jax")
    on_cpu = torch.ones(5)

    class Holder:
        shift = 0.0

    holder = Holder()
    holder.shift = 0.0

    @Compiled
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


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TPU_RUNTIME_EAGER", "1")
    yield


def test_the_switch_runs_steps_eagerly(eager: None) -> None:
    seen = []

    @Compiled
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


# ---- numbers that change -------------------------------------------------------------------------


def test_a_number_that_is_compared_chooses_between_two_programs() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.SGD(model.parameters(), 0.1)

        @Compiled
        def loss_of(x: Tensor, y: Tensor, epoch: int) -> Tensor:
            loss = F.cross_entropy(model(x), y)
            return loss * 2 if epoch > 5 or epoch == 0 else loss

        @compile_
        def step(x: Tensor, y: Tensor, epoch: int) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(x, y, epoch)
            loss.backward()
            optimizer.step()
            return loss  # type: ignore[no-any-return]

        losses = []
        for number in range(20):
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            losses.append(step(x, y, number // 2).item())
        assert device == "cpu" or 1 <= loss_of.compilations <= 3
        return losses, model

    compare(program)


def test_a_number_that_is_computed_with_is_a_tensor() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.Adam(model.parameters(), 0.01)
        weight, losses = 0.5, []

        @Compiled
        def loss_of(x: Tensor, y: Tensor, weight: float) -> Tensor:
            out = model(x)
            return weight * F.cross_entropy(out, y) + out.square().mean() / (1 + weight)

        @compile_
        def step(x: Tensor, y: Tensor, weight: float) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(x, y, weight)
            loss.backward()
            optimizer.step()
            return loss  # type: ignore[no-any-return]

        for number in range(12):
            x, y = batch(number, 8, 6).to(device), labels(number).to(device)
            losses.append(step(x, y, weight).item())
            weight = 0.9 * weight + 0.1 * losses[-1]
        assert device == "cpu" or 1 <= loss_of.compilations <= 2
        return losses, model

    compare(program)


def test_numbers_that_decide_or_count_go_by_their_values() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        model = mlp().to(device)
        optimizer = optim.SGD(model.parameters(), 0.1)

        @Compiled
        def loss_of(x: Tensor, y: Tensor, weight: float, repeat: int) -> tuple[Tensor, float]:
            out = model(x)
            for _ in range(repeat):
                out = out + model(x)
            return F.cross_entropy(out, y) * (2 if weight > 0.5 else 1), weight / 2

        @compile_
        def step(x: Tensor, y: Tensor, weight: float, repeat: int) -> tuple[Tensor, float]:
            optimizer.zero_grad()
            loss, half = loss_of(x, y, weight, repeat)
            loss.backward()
            optimizer.step()
            return loss, half

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

    assert compare(program) == 1


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

    assert compare(program) == 1


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

    assert compare(program) == 1


def test_a_graph_that_goes_on_into_a_step_keeps_its_gradient() -> None:
    def program(device: str, compile_: Compile) -> tuple[list[float], nn.Module]:
        encoder, head = mlp().to(device), nn.Linear(5, 1).to(device)
        optimizer = optim.SGD([*encoder.parameters(), *head.parameters()], 0.1)

        @compile_
        def step(features: Tensor) -> Tensor:
            loss = head(features).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(encoder(batch(1, 8, 6).to(device))).item() for _ in range(STEPS)]
        return losses, encoder

    assert compare(program) == 1
