"""Values that a compiled step depends on; a step without an optimizer."""

import collections
import cProfile
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.steps import linear, on_both, on_device
from tests.runtime.support import agree, batch

tpu.setup()
internals = sys.modules["tpu_runtime.compilation.compiled_function"]


helpers = types.ModuleType("helpers")
exec(  # a module of the user's
    "TEMPERATURE = 1.0\nsettings = {'bias': 0.0}\nclass Config:\n    gain = 1.0\n"
    "def soften(x):\n    return x * TEMPERATURE * Config.gain + settings['bias']\n",
    helpers.__dict__,
)
WEIGHTS = [1.0, 2.0, 3.0]


def weighted(factor: float) -> Callable[[Tensor], Tensor]:
    def weigh(x: Tensor) -> Tensor:
        return x * factor * WEIGHTS[0]

    def change(value: float) -> None:
        nonlocal factor
        factor = value

    weigh.change = change  # type: ignore[attr-defined]
    return weigh


class Loss:
    power = 1

    def __init__(self) -> None:
        self.options = types.SimpleNamespace(weight=1.0)

    def __call__(self, x: Tensor) -> Tensor:
        return (x**self.power).sum() * self.options.weight


def test_values_of_helpers_are_not_baked() -> None:
    loss, weigh = Loss(), weighted(1.0)
    model = linear()

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        return loss(weigh(helpers.soften(model(x))))

    def expected(x: Tensor) -> Tensor:
        return loss(weigh(helpers.soften(model(x))))

    def put(holder: Any, name: str, value: Any) -> Callable[[], None]:
        return lambda: setattr(holder, name, value)

    x = on_device(0, 5, 4)
    changes: list[Callable[[], None]] = [
        lambda: None,
        put(helpers, "TEMPERATURE", 2.0),
        put(helpers.Config, "gain", 3.0),
        lambda: helpers.settings.update(bias=1.0),
        lambda: WEIGHTS.__setitem__(0, 5.0),
        lambda: weigh.change(7.0),  # type: ignore[attr-defined]
        put(loss, "power", 2),
        put(loss.options, "weight", 0.5),
        put(Loss, "power", 1),
        put(helpers, "soften", lambda y: y),
        lambda: model.register_forward_hook(lambda m, i, output: output * 2) and None,
        put(model, "forward", lambda x: x[:, :3]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for change in changes:
            change()
            for _ in range(3):
                agree(step(x), expected(x))
    assert not step.why_eager
    assert step.compilations >= len(changes) - 3


def test_values_in_objects_and_containers_of_other_kinds() -> None:
    class Slots:
        __slots__ = ("gain",)

        def __init__(self) -> None:
            self.gain = 1.0

    def make(factor: list[float]) -> Callable[[Tensor], Tensor]:
        return lambda x: x * factor[0]

    slots, given, loss = Slots(), Slots(), Loss()
    array, chosen, queue = np.ones(3), {1}, collections.deque([1.0])
    shared: Any = [1.0]
    holder = types.SimpleNamespace(scale=make(shared))

    def plain(x: Tensor, other: Slots, criterion: Loss) -> Tensor:
        y = holder.scale(x) * slots.gain * other.gain * float(array[0]) * queue[0]
        return criterion(y) * (2 if 2 in chosen else 1)

    step = tpu.train_step(plain)
    x = on_device(0, 5, 4)
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(slots, "gain", 2.0),
        lambda: setattr(given, "gain", 3.0),
        lambda: setattr(loss.options, "weight", 4.0),
        lambda: array.fill(5.0),
        lambda: chosen.add(2),
        lambda: queue.append(0.0) or queue.popleft() or queue.append(7.0) or queue.popleft(),
        lambda: shared.__setitem__(0, 2.0),
        lambda: setattr(holder, "scale", make(shared)),
        lambda: shared.__setitem__(0, 3.0),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for change in changes:
            change()
            for _ in range(3):
                agree(step(x, given, loss), plain(x, given, loss))
    assert not step.why_eager


def test_what_is_put_into_a_fresh_dict_is_in_that_dict() -> None:
    model = linear()
    data: dict[str, Any] = {}

    @tpu.train_step
    def step() -> Tensor:
        data["out"] = model(data["x"])
        return data["out"].sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(8):
            if number > 3:
                data = {}
            data["x"] = on_device(number, 5, 4)
            agree(step(), model(data["x"]).sum())
            agree(data["out"], model(data["x"]))


def test_a_graph_that_comes_later() -> None:
    first, second = linear(), nn.Linear(3, 2).to("jax")

    @tpu.train_step
    def step(hidden: Tensor) -> Tensor:
        loss = second(hidden).square().mean()
        loss.backward()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(6):
            hidden = first(on_device(number, 5, 4))
            step(hidden if number > 3 else hidden.detach())
            assert (first.weight.grad is not None) == (number > 3)


def test_a_leaf_that_only_a_helper_knows_gets_a_gradient() -> None:
    """The first trace finds it and is given up: its gradient may keep nothing of that trace."""
    code = "def weighted():\n    return (weight * x).sum()\n"

    def program(device: str, compile_: Any) -> list[Any]:
        weight, x = (torch.ones(2).to(device).requires_grad_() for _ in range(2))
        optimizer = optim.SGD([weight], 0.1)
        here: dict[str, Any] = {"weight": weight, "x": x}
        exec(code, here)
        weighted = here["weighted"]

        @compile_
        def step() -> Tensor:
            optimizer.zero_grad()
            loss = weighted()
            loss.backward()
            optimizer.step()
            return loss

        return [step(), step(), step(), x.grad]

    on_both(program)


def test_under_a_profiler_what_a_step_depends_on_is_not_known() -> None:
    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        return x * 2

    with pytest.warns(UserWarning, match="a profiler is at work"), cProfile.Profile():
        for _ in range(3):
            agree(step(torch.ones(3).to("jax")), torch.ones(3) * 2)


# ---- a step without an optimizer -----------------------------------------------------------------


def test_the_closure_of_lbfgs() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        model = linear(device)
        optimizer = optim.LBFGS(model.parameters(), 0.5, max_iter=4)
        x, y = batch(0, 5, 4).to(device), batch(1, 5, 3).to(device)

        @compile_
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        results = []
        for _ in range(3):  # later ones differ in float32, compiled or not
            results.append(optimizer.step(closure))
        return results

    step = on_both(program)
    assert 1 <= step.compilations <= 2 and not step.why_eager


def test_a_counter_that_is_called_as_a_method_is() -> None:
    """`step` is a number here; what the code names is `optimizer.step`."""
    model = nn.Linear(4, 2).to("jax")
    here: dict[str, Any] = {
        "tpu": tpu, "model": model, "optimizer": optim.SGD(model.parameters(), 0.1), "step": 0,
    }  # fmt: skip
    code = (
        "class Trainer:\n"
        "    step = 0\n"
        "    def __init__(self):\n"
        "        self.step, self.loss_of = 0, lambda out: out.square().mean()\n"
        "    @tpu.train_step\n"
        "    def train(self, x):\n"
        "        loss = self.loss_of(model(x))\n"
        "        optimizer.zero_grad()\n"
        "        loss.backward()\n"
        "        optimizer.step()\n"
        "        return loss\n"
    )
    exec(code, here)
    trainer = here["Trainer"]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for number in range(12):
            here["step"] = trainer.step = number
            trainer.train(batch(number, 3, 4).to("jax"))
    assert trainer.train.compilations == 1
    before = trainer.train(batch(0, 3, 4).to("jax"))
    trainer.loss_of = lambda out: out.square().mean() * 0
    assert before > 0 and trainer.train(batch(0, 3, 4).to("jax")) == 0
