"""Tensors in variables of a compiled function; what it must not keep, print or draw."""

import copy
import logging
import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.steps import Compiled, linear, on_both, on_device, programs_of
from tests.runtime.support import agree, batch

tpu.setup()
internals = sys.modules["tpu_runtime.compilation.compiled_function"]


def test_tensors_of_a_loop_are_inputs_by_their_place() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        model = linear(device)
        holder = types.SimpleNamespace(target=None)
        results = []

        @compile_
        def step(x: Tensor) -> Tensor:
            return (model(x) - holder.target + pair[0]).square().mean()

        for number in range(6):
            x = batch(number, 5, 4).to(device)
            holder.target = batch(number + 10, 5, 3).to(device)
            pair = (batch(number + 20, 3).to(device), 1.0)
            results.append(step(x))
        return results

    assert on_both(program).compilations == 1


def test_a_buffer_that_is_replaced() -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear("cpu")
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            out = self.layer(x)
            self.mean = 0.9 * self.mean + 0.1 * out.detach().mean(0)
            return out - self.mean

    def program(device: str, compile_: Any) -> list[Any]:
        model = Running().to(device)

        @compile_
        def step(x: Tensor) -> Tensor:
            return model(x).square().mean()

        results = []
        for number in range(6):
            results += [step(batch(number, 5, 4).to(device)), model.mean.clone()]
        return results

    assert on_both(program).compilations <= 2


def test_the_state_of_an_optimizer_that_is_loaded() -> None:
    def program(device: str) -> list[Any]:
        model = linear(device)
        optimizer = optim.Adam(model.parameters(), 0.1)
        saved: Any = None

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        results = []
        for number in range(12):
            if number == 3:
                saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
            if number in (6, 9):
                model.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
            results.append(step(batch(number, 5, 4).to(device)))
        return results

    assert programs_of(program) <= 3


def test_a_model_that_changes_its_type_between_two_steps() -> None:
    model = linear()

    @Compiled
    def step(x: Tensor) -> Tensor:
        return model(x)

    for number in range(8):
        if number == 4:
            model.bfloat16()
        x = on_device(number, 5, 4).to(model.weight.dtype)
        result = step(x)
        assert result.dtype == model.weight.dtype
        agree(result, model(x))


# ---- what a step must not keep, print or draw ----------------------------------------------------


def counted_calls(value: float) -> float:
    return random.random() * 0 + value


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = linear("cpu")
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(x.mean())
        return self.layer(x)


class Meter:
    __slots__ = ("last",)


def test_what_keeps_tensors_runs_eagerly_and_keeps_them() -> None:
    meter = Meter()
    model, features = Keeps().to("jax"), []
    plain = linear()
    plain.register_forward_hook(lambda module, inputs, output: features.append(output.detach()))

    @Compiled
    def in_a_list(x: Tensor) -> Tensor:
        return model(x)

    @Compiled
    def in_a_hook(x: Tensor) -> Tensor:
        return plain(x)

    @Compiled
    def in_slots(x: Tensor) -> Tensor:
        meter.last = x.mean()
        return x * 2

    for step, kept in ((in_a_list, model.kept), (in_a_hook, features), (in_slots, None)):
        with pytest.warns(UserWarning, match="not compiled as a whole"):
            for number in range(4):
                step(on_device(number, 5, 4))
        assert not step.compilations
        if kept is not None:
            assert len(kept) == 4 and all(torch.isfinite(t.cpu()).all() for t in kept)
    agree(meter.last, batch(3, 5, 4).mean())


def test_a_step_that_prints_prints_at_each_call(capsys: Any, caplog: Any) -> None:
    @Compiled
    def prints(x: Tensor) -> Tensor:
        print("here")
        return x * 2

    @Compiled
    def writes(x: Tensor) -> Tensor:
        sys.stderr.write("there\n")
        return x * 2

    with pytest.warns(UserWarning, match="it prints"):
        for _ in range(4):
            prints(on_device(0, 3)), writes(on_device(0, 3))
    shown = capsys.readouterr()
    assert shown.out.count("here") == 4 and shown.err.count("there") == 4


def test_a_step_that_logs_logs_at_each_call() -> None:
    stream = __import__("io").StringIO()
    logger = logging.getLogger("a step")
    logger.addHandler(logging.StreamHandler(stream))

    @Compiled
    def step(x: Tensor) -> Tensor:
        logger.warning("seen")
        return x * 2

    with pytest.warns(UserWarning, match="it prints"):
        for _ in range(4):
            step(on_device(0, 3))
    assert stream.getvalue().count("seen") == 4


def test_warnings_are_no_prints() -> None:
    @Compiled
    def step(x: Tensor) -> Tensor:
        warnings.warn("old-fashioned", DeprecationWarning, stacklevel=1)
        return x * 2

    with warnings.catch_warnings(record=True):
        for _ in range(3):
            step(on_device(0, 3))
    assert step.compilations == 1


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: torch.rand(()).item()])
def test_random_numbers_of_python_are_not_baked(draw: Callable[[], float]) -> None:
    @Compiled
    def step(x: Tensor) -> Tensor:
        return x * float(draw())

    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    expected = [float(draw()) for _ in range(4)]
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [step(torch.ones(()).to("jax")).item() for _ in range(4)]
    agree(found, expected)
    assert "draws random numbers" in step.why_eager


def test_a_model_that_counts_is_not_counted_twice() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    model = Counting().to("jax")

    @Compiled
    def step(x: Tensor) -> Tensor:
        return model(x)

    with pytest.warns(UserWarning, match="counts or remembers"):
        assert [step(torch.ones(()).to("jax")).item() for _ in range(4)] == [1, 2, 3, 4]


def test_train_mode_that_the_step_sets_itself() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to("jax")

    @Compiled
    def step(x: Tensor) -> Tensor:
        model.train()
        return model(x)

    for number in range(8):
        if number % 2:
            model.eval()
        step(on_device(number, 5, 4))
        assert model.training and model[1].training
    assert not step.why_eager
