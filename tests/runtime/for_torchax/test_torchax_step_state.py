"""What a compiled step depends on and changes, beside its tensors; as test_torchax_train_step.py.

Nothing that changes between two calls may be baked into a program, and nothing that a step changes
may be lost: each test fails where one of them is.
"""

import collections
import copy
import cProfile
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
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn, optim

from tests.runtime.support import agree, batch

tpu.setup()
internals = sys.modules["tpu_runtime.compiled"]


def on_device(number: int, *shape: int) -> Any:
    return batch(number, *shape).to("jax")


def linear(device: str = "jax") -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3).to(device)


def on_both(program: Callable[[str, Callable[..., Any]], list[Any]]) -> Any:
    """The same numbers on the CPU and compiled on the device; returns the compiled step."""
    made: list[Any] = []

    def compile_(function: Callable[..., Any]) -> Any:
        made.append(tpu.train_step(function))
        return made[-1]

    for found, expected in zip(program("jax", compile_), program("cpu", lambda f: f), strict=True):
        agree(found, expected)
    return made[0]


# ---- objects -------------------------------------------------------------------------------------


class Batch:
    def __init__(self, number: int, scale: float = 1.0) -> None:
        self.x = on_device(number, 5, 4)
        self.more = {"y": on_device(number + 100, 5, 3), "scale": scale}


def test_a_fresh_object_at_each_call_is_no_old_one() -> None:
    model = linear()

    @tpu.train_step
    def step(data: Batch) -> Tensor:
        return ((model(data.x) - data.more["y"]) * data.more["scale"]).square().mean()

    for number in range(12):  # each is freed before the next one is made, perhaps in its place
        data = Batch(number, 1.0 if number < 9 else 2.0)
        expected = ((model(data.x) - data.more["y"]) * data.more["scale"]).square().mean()
        agree(step(data), expected)
    assert step.compilations == 2


def test_an_object_whose_inside_is_not_known_keeps_its_own_program() -> None:
    class Slots:
        __slots__ = ("x",)

        def __init__(self, number: int) -> None:
            self.x = on_device(number, 5, 4)

    model = linear()

    @tpu.train_step
    def step(data: Slots) -> Tensor:
        return model(data.x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(12):
            data = Slots(number)
            agree(step(data), model(data.x))


def test_the_programs_of_a_step_are_bounded_and_the_number_that_changes_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(internals, "MOST", 10)  # so that fewer have to be compiled
    model = linear()

    @tpu.train_step
    def step(x: Tensor, epoch: int = 0) -> Tensor:
        return model(x) * epoch

    x = on_device(0, 5, 4)
    with pytest.warns(UserWarning, match=r"8 sets of shapes or Python values.*\(epoch\)"):
        for epoch in range(14):
            for _ in range(2):  # the second one compiles
                agree(step(x, epoch=epoch), model(x) * epoch)
    assert step.compilations > 10 >= len(step._program.programs)
    agree(step(x, epoch=0), model(x) * 0)


def test_shapes_that_come_once_are_not_compiled() -> None:
    model = linear()

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        return model(x)

    with pytest.warns(UserWarning, match=r"8 sets of shapes"):
        for size in range(1, 30):
            step(on_device(0, size, 4))
    assert step.compilations <= internals.UNUSED
    for _ in range(3):
        step(on_device(0, 20, 4))
    assert step.compilations <= internals.UNUSED + 1


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

    @tpu.train_step
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
        def step(x: Tensor) -> Tensor:
            loss = model(x).square().mean()
            loss.backward()
            return loss

        results = []
        for number in range(4):
            x = batch(number, 5, 4).to(device).requires_grad_()
            results += [step(x), x.grad]
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
        def step(hidden: Tensor) -> Tensor:
            loss = second(hidden).square().mean()
            loss.backward()
            return loss

        results = []
        for number in range(4):
            first.zero_grad()
            results += [step(first(batch(number, 5, 4).to(device))), first.weight.grad.clone()]
        return results

    on_both(program)


def test_the_result_may_be_what_was_given() -> None:
    @tpu.train_step
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        return x, x.add_(y), {"y": y, "n": 3}

    for _ in range(3):
        x, y = torch.zeros(3).to("jax"), torch.ones(3).to("jax")
        first, second, rest = step(x, y)
        assert first is x and second is x and rest["y"] is y and rest["n"] == 3
        agree(x, torch.ones(3))


@pytest.mark.filterwarnings("ignore:.*not compiled as a whole")
def test_a_result_that_is_a_view_of_what_was_given() -> None:
    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        return x.view(-1)

    for _ in range(3):
        x = torch.zeros(2, 2).to("jax")
        step(x).add_(1)
        agree(x, torch.ones(2, 2))


# ---- tensors in variables and attributes ---------------------------------------------------------


def test_tensors_of_a_loop_are_inputs_by_their_place() -> None:
    def program(device: str, compile_: Any) -> list[Any]:
        model = linear(device)
        holder = types.SimpleNamespace(target=None)
        results = []

        @compile_
        def step() -> Tensor:
            return (model(x) - holder.target + pair[0]).square().mean()

        for number in range(6):
            x = batch(number, 5, 4).to(device)
            holder.target = batch(number + 10, 5, 3).to(device)
            pair = (batch(number + 20, 3).to(device), 1.0)
            results.append(step())
        return results

    assert on_both(program).compilations == 1


class Translator:
    """As the trainers of pix2pix and its relatives keep their batches and results."""

    def __init__(self, device: str) -> None:
        self.net = linear(device)
        self.optimizer = optim.SGD(self.net.parameters(), 0.1)
        self.criterion = nn.MSELoss()
        self.alpha = 1.0
        self.real: Any = None
        self.aim: Any = None

    def set_input(self, number: int, device: str) -> None:
        self.real, self.aim = batch(number, 5, 4).to(device), batch(number + 9, 5, 3).to(device)

    def forward(self) -> None:
        self.fake = self.net(self.real)

    def plain(self) -> None:
        self.forward()
        self.optimizer.zero_grad()
        self.loss = self.criterion(self.fake, self.aim) * self.alpha
        self.loss.backward()
        self.optimizer.step()

    @tpu.train_step
    def compiled(self) -> None:
        self.plain()

    @tpu.train_step
    def optimize(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.criterion(self.net(x), y) * self.alpha
        loss.backward()
        self.optimizer.step()
        return loss


def test_a_trainer_that_keeps_its_batch_and_its_result() -> None:
    def run(device: str) -> list[Any]:
        trainer = Translator(device)
        results = []
        for number in range(7):
            trainer.alpha = 1.0 if number < 5 else 0.25
            trainer.set_input(number, device)
            trainer.compiled() if device == "jax" else trainer.plain()
            results += [trainer.fake, trainer.loss, copy.deepcopy(trainer.net.weight.detach())]
        if device == "jax":
            assert trainer.compiled.compilations == 2 and not trainer.compiled.why_eager
        return results

    for found, expected in zip(run("jax"), run("cpu"), strict=True):
        agree(found, expected)


def test_a_method_is_a_step_of_each_object() -> None:
    def run(device: str) -> list[Any]:
        trainers = [Translator(device), Translator(device)]
        trainers[1].alpha = 3.0
        results = []
        for number in range(8):
            for trainer in trainers:
                if number == 5:
                    trainer.alpha = 0.5
                step = trainer.optimize
                x, y = batch(number, 5, 4).to(device), batch(number + 9, 5, 3).to(device)
                results.append(
                    step(x, y) if device == "jax" else step.function.__func__(trainer, x, y)
                )
        if device == "jax":
            assert [t.optimize.compilations for t in trainers] == [2, 2]
        return results

    for found, expected in zip(run("jax"), run("cpu"), strict=True):
        agree(found, expected)


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
    def program(device: str, compile_: Any) -> list[Any]:
        model = linear(device)
        optimizer = optim.Adam(model.parameters(), 0.1)
        saved: Any = None

        @compile_
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

    assert on_both(program).compilations == 1


def test_a_model_that_changes_its_type_between_two_steps() -> None:
    model = linear()

    @tpu.train_step
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

    @tpu.train_step
    def in_a_list(x: Tensor) -> Tensor:
        return model(x)

    @tpu.train_step
    def in_a_hook(x: Tensor) -> Tensor:
        return plain(x)

    @tpu.train_step
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
    @tpu.train_step
    def prints(x: Tensor) -> Tensor:
        print("here")
        return x * 2

    @tpu.train_step
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

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        logger.warning("seen")
        return x * 2

    with pytest.warns(UserWarning, match="it prints"):
        for _ in range(4):
            step(on_device(0, 3))
    assert stream.getvalue().count("seen") == 4


def test_warnings_are_no_prints() -> None:
    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        warnings.warn("old-fashioned", DeprecationWarning, stacklevel=1)
        return x * 2

    with warnings.catch_warnings(record=True):
        for _ in range(3):
            step(on_device(0, 3))
    assert step.compilations == 1


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: torch.rand(()).item()])
def test_random_numbers_of_python_are_not_baked(draw: Callable[[], float]) -> None:
    @tpu.train_step
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

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        return model(x)

    with pytest.warns(UserWarning, match="counts or remembers"):
        assert [step(torch.ones(()).to("jax")).item() for _ in range(4)] == [1, 2, 3, 4]


def test_train_mode_that_the_step_sets_itself() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to("jax")

    @tpu.train_step
    def step(x: Tensor) -> Tensor:
        model.train()
        return model(x)

    for number in range(8):
        if number % 2:
            model.eval()
        step(on_device(number, 5, 4))
        assert model.training and model[1].training
    assert not step.why_eager


# ---- values that the code depends on -------------------------------------------------------------

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
