"""What a compiled function depends on and changes, beside its tensors.

Nothing that changes between two calls may be baked into a program, and nothing that it changes
may be lost: each test fails where one of them is.
"""

import collections
import sys
import warnings
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.modules import parts
from tests.runtime.for_torchax.steps import Compiled, linear, on_both, on_device, programs_of
from tests.runtime.support import agree, batch

tpu.setup()
internals = sys.modules["tpu_runtime.compilation.compiled_function"]


# ---- objects -------------------------------------------------------------------------------------


class Batch:
    def __init__(self, number: int, scale: float = 1.0) -> None:
        self.x = on_device(number, 5, 4)
        self.more = {"y": on_device(number + 100, 5, 3), "scale": scale}


def test_a_module_that_is_made_in_a_step_follows_what_it_is_made_of() -> None:
    model, slopes = linear(), {"slope": 0.1}

    @Compiled
    def step(x: Tensor) -> Tensor:
        return nn.LeakyReLU(slopes["slope"])(model(x)).sum()

    for number, slope in enumerate((0.1, 0.1, 0.1, 0.9, 0.9, 0.1)):
        slopes["slope"] = slope
        x = on_device(number, 5, 4)
        agree(step(x), torch.where(model(x) > 0, model(x), slope * model(x)).sum())
    assert step.compilations == 2 and not step.why_eager


def test_a_fresh_object_at_each_call_is_no_old_one() -> None:
    model = linear()

    @Compiled
    def step(x: Tensor, data: Batch) -> Tensor:
        return ((model(x) - data.more["y"]) * data.more["scale"]).square().mean()

    for number in range(12):  # each is freed before the next one is made, perhaps in its place
        data = Batch(number, 1.0 if number < 9 else 2.0)
        expected = ((model(data.x) - data.more["y"]) * data.more["scale"]).square().mean()
        agree(step(data.x, data), expected)
    assert step.compilations == 2


def test_an_object_whose_inside_is_not_known_keeps_its_own_program() -> None:
    class Slots:
        __slots__ = ("x",)

        def __init__(self, number: int) -> None:
            self.x = on_device(number, 5, 4)

    model = linear()

    @Compiled
    def step(x: Tensor, data: Slots) -> Tensor:
        return x.sum() + model(data.x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(12):
            data = Slots(number)
            agree(step(data.x, data), data.x.sum() + model(data.x))


def test_the_programs_of_a_function_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "MOST", 10)  # so that fewer have to be compiled
    model = linear()

    @Compiled
    def step(x: Tensor, epoch: int = 0) -> Tensor:
        return model(x) * epoch

    x = on_device(0, 5, 4)
    for epoch in range(14):
        for _ in range(2):  # the second one compiles
            agree(step(x, epoch=epoch), model(x) * epoch)
    (part,) = parts(step).values()
    assert step.compilations > 10 >= len(part.programs)
    agree(step(x, epoch=0), model(x) * 0)


# ---- tensors that a step writes ------------------------------------------------------------------


def test_what_is_written_to_an_argument_reaches_the_caller() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        model = linear(device)

        @compile_
        def step(x: Tensor, mask: Tensor, label: Tensor) -> Tensor:
            label.fill_(2)
            mask[:, 0] = 0
            x.mul_(mask)
            return model(x).mean()

        results = []
        for number in range(4):
            base = batch(number, 7, 4).to(device)
            x, mask = base[1:6], torch.ones(5, 4).to(device)
            label = torch.zeros(3).to(device)
            results += [step(x, mask, label), base.clone(), mask, label]
        return results

    assert on_both(program).compilations == 1


def test_what_is_written_to_a_cpu_tensor_reaches_the_caller() -> None:
    model = linear()

    @Compiled
    def step(x: Tensor, counts: Tensor) -> Tensor:
        counts.add_(1)
        return model(x)

    counts = torch.zeros(3)
    for _ in range(4):
        step(on_device(0, 5, 4), counts)
    assert counts.tolist() == [4.0] * 3 and counts.device.type == "cpu"


def test_an_argument_that_is_given_twice_is_one_tensor() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        @compile_
        def step(x: Tensor, y: Tensor) -> Tensor:
            x.add_(1)
            return x + y

        results = []
        for number in range(6):
            x = batch(number, 5).to(device)
            y = x if number % 2 else batch(number, 5).to(device)
            results += [step(x, y), x, y]
        return results

    on_both(program)


@pytest.mark.filterwarnings("ignore:.*not compiled as a whole")
def test_a_tensor_and_a_view_of_it() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        @compile_
        def step(x: Tensor, y: Tensor) -> Tensor:
            x.add_(1)
            return x.sum() + y

        results = []
        for number in range(4):
            x = batch(number, 5).to(device)
            results += [step(x, x[1:3]), x]
        return results

    on_both(program)


def test_an_argument_that_gets_a_gradient() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        model = linear(device)

        @compile_
        def loss_of(x: Tensor) -> Tensor:
            return model(x).square().mean()

        results = []
        for number in range(4):
            x = batch(number, 5, 4).to(device).requires_grad_()
            loss = loss_of(x)
            loss.backward()
            results += [loss, x.grad]
        return results

    assert on_both(program).compilations == 1


@pytest.mark.filterwarnings("ignore:.*not compiled as a whole")
def test_an_argument_with_a_graph_keeps_it() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        first, second = linear(device), nn.Linear(3, 2).to(device)
        with torch.no_grad():
            second.weight.fill_(0.5)
            second.bias.zero_()

        @compile_
        def loss_of(hidden: Tensor) -> Tensor:
            return second(hidden).square().mean()

        results = []
        for number in range(4):
            first.zero_grad()
            loss = loss_of(first(batch(number, 5, 4).to(device)))
            loss.backward()
            results += [loss, first.weight.grad.clone()]
        return results

    on_both(program)


def test_the_result_may_be_what_was_given() -> None:
    @Compiled
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        return x, x.add_(y), {"y": y, "n": 3}

    for _ in range(3):
        x, y = torch.zeros(3).to("jax"), torch.ones(3).to("jax")
        first, second, rest = step(x, y)
        assert first is x and second is x and rest["y"] is y and rest["n"] == 3
        agree(x, torch.ones(3))


@pytest.mark.filterwarnings("ignore:.*not compiled as a whole")
def test_a_result_that_is_a_view_of_what_was_given() -> None:
    @Compiled
    def step(x: Tensor) -> Tensor:
        return x.view(-1)

    for _ in range(3):
        x = torch.zeros(2, 2).to("jax")
        step(x).add_(1)
        agree(x, torch.ones(2, 2))


# ---- optimizers ----------------------------------------------------------------------------------


class Wrapper(optim.Optimizer):
    """As many a Lookahead: Optimizer.__init__ is not called."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups
        self.state = collections.defaultdict(dict)

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


@pytest.mark.filterwarnings("ignore:.*not compiled as a whole")
def test_an_optimizer_that_wraps_another() -> None:
    def program(device: str) -> list[Any]:
        model, x = linear(device), batch(0, 5, 4).to(device)
        optimizer = Wrapper(optim.Adam(model.parameters()))

        def step() -> Tensor:
            optimizer.optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return [step() for _ in range(3)]

    programs_of(program)
