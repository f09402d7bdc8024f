"""Values that a compiled function depends on."""

import collections
import cProfile
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import tpu_runtime as tpu
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.steps import Compiled, linear, on_device, programs_of
from tests.runtime.support import agree

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

    @Compiled
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

    step = Compiled(plain)
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

    @Compiled
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

    @Compiled
    def loss_of(hidden: Tensor) -> Tensor:
        return second(hidden).square().mean()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(6):
            hidden = first(on_device(number, 5, 4))
            loss_of(hidden if number > 3 else hidden.detach()).backward()
            assert (first.weight.grad is not None) == (number > 3)


def test_a_leaf_that_only_a_helper_knows_gets_a_gradient() -> None:
    """The first trace finds it and is given up: its gradient may keep nothing of that trace."""
    code = "def weighted():\n    return (weight * x).sum()\n"

    def program(device: str) -> list[Any]:
        weight, x = (torch.ones(2).to(device).requires_grad_() for _ in range(2))
        optimizer = optim.SGD([weight], 0.1)
        here: dict[str, Any] = {"weight": weight, "x": x}
        exec(code, here)
        weighted = Compiled(here["weighted"]) if device == "jax" else here["weighted"]

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = weighted()
            loss.backward()
            optimizer.step()
            return loss

        return [step(), step(), step(), x.grad]

    programs_of(program)


def test_a_profiler_may_be_at_work() -> None:
    @Compiled
    def step(x: Tensor) -> Tensor:
        return x * 2

    with cProfile.Profile():
        for _ in range(3):
            agree(step(torch.ones(3).to("jax")), torch.ones(3) * 2)
