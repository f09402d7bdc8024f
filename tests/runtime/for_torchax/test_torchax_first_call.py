"""The first call of a model: compiled at once, where its code does nothing but compute."""

import functools
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from tiers import thorough_between
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.modules import STEP, compiled
from tests.runtime.for_torchax.steps import Compiled
from tests.runtime.support import agree, batch

tpu.setup()


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        seen = []
        for layer in self.layers:
            x = torch.tanh(layer(x))
            seen.append(x)
        first, *others = (y * y.abs() for y in seen)
        return self.frozen(torch.stack([first, *[y + 1 for y in others]]).mean(0))


Make = Callable[[Any], optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "dampened": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.5),
    "adamw": lambda p: optim.AdamW(p, 0.01, amsgrad=True),
    "nadam": lambda p: optim.NAdam(p, 0.01),
    "rprop": lambda p: optim.Rprop(p, 0.001),
    "adamax": lambda p: optim.Adamax(p, 0.01),
}


@pytest.mark.parametrize("name", thorough_between(3, OPTIMIZERS))
@pytest.mark.parametrize("last", [False, True], ids=["zero_grad first", "zero_grad last"])
def test_it_is_a_program_and_the_next_calls_use_it(name: str, last: bool) -> None:
    make = OPTIMIZERS[name]
    losses, states = {}, {}
    for device in ("cpu", "jax"):
        torch.manual_seed(0)
        model = Net().to(device)
        optimizer = make(model.parameters())

        def step(
            x: Tensor,
            model: Net = model,
            optimizer: optim.Optimizer = optimizer,
        ) -> Tensor:
            if not last:
                optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if last:
                optimizer.zero_grad()
            return loss

        found = []
        for number in range(4):
            found.append(step(batch(number, 5, 6).to(device)).item())
            if device == "jax" and number == 0 and make is not OPTIMIZERS["dampened"]:
                assert compiled(model) == compiled(optimizer, STEP) == 1
        losses[device] = found
        states[device] = [optimizer.state_dict()["state"], model.state_dict()]
    agree(losses["jax"], losses["cpu"])
    assert compiled(model) == compiled(optimizer, STEP) == 1
    (state, weights), (wanted_state, wanted) = states["jax"], states["cpu"]
    assert state.keys() == wanted_state.keys()
    for number, values in wanted_state.items():
        assert state[number].keys() == values.keys()
        for name, value in values.items():
            if isinstance(value, Tensor):
                agree(state[number][name], value, 3e-5)
    for name, value in wanted.items():
        agree(weights[name], value)


count = 0
kept: dict[str, Any] = {}


class Remembering(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        global count
        count += 1
        return x * 2


def into_a_list(x: Tensor, seen: list[int]) -> Tensor:
    seen.append(1)
    return x * 2


def into_an_alias(x: Tensor, seen: list[int]) -> Tensor:
    others = seen
    others += [1]
    return x * 2


def by_setattr(x: Tensor, seen: list[int]) -> Tensor:
    setattr(seen, "x", 1) if len(seen) > 99 else seen.insert(0, 1)
    return x * 2


@functools.lru_cache
def table(size: int) -> Tensor:
    return torch.ones(size, device="jax")


def of_a_cache(x: Tensor, seen: list[int]) -> Tensor:
    return x * 2 * table(x.shape[-1])


def in_a_dict(x: Tensor, seen: list[int]) -> Tensor:
    if "ones" not in kept:
        kept["ones"] = torch.ones(x.shape[-1], device=x.device)
    return x * 2 * kept["ones"]


@pytest.mark.parametrize("double", [into_a_list, into_an_alias, by_setattr, of_a_cache, in_a_dict])
@pytest.mark.filterwarnings("ignore:.*not compiled")
def test_what_it_leaves_behind_is_left_once(double: Any) -> None:
    seen: list[int] = []
    weight = nn.Parameter(torch.ones(3, device="jax"))

    @Compiled
    def step(x: Tensor) -> Tensor:
        return double(x, seen) * weight

    agree(step(batch(0, 3).to("jax")), batch(0, 3) * 2)
    assert len(seen) == (1 if double in (into_a_list, into_an_alias, by_setattr) else 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(1, 4):
            agree(step(batch(number, 3).to("jax")), batch(number, 3) * 2)


def test_a_counter_of_a_module() -> None:
    global count
    count, model = 0, Remembering()
    weight = nn.Parameter(torch.ones(3, device="jax"))

    @Compiled
    def step(x: Tensor) -> Tensor:
        return model(x) * weight

    step(batch(0, 3).to("jax"))
    assert count == 1 and step.compilations == 0


def test_a_tensor_of_the_cpu_that_is_written_to() -> None:
    total, model = torch.zeros(()), nn.Linear(3, 3).to("jax")

    @Compiled
    def step(x: Tensor) -> Tensor:
        total.add_(1)
        return model(x)

    step(batch(0, 3).to("jax"))
    assert total == 1


def test_clipping_before_the_gradients_are_dropped_uses_them() -> None:
    """What is expected of gradients does not hold here: it is traced again without."""
    losses: dict[str, list[float]] = {}
    for device in ("cpu", "jax"):
        torch.manual_seed(0)
        model = nn.Linear(3, 3).to(device)
        optimizer = optim.SGD(model.parameters(), 0.1)

        @tpu.train_step
        def step(x: Tensor, model: Any = model, optimizer: Any = optimizer) -> Tensor:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x)
            loss.backward()
            optimizer.step()
            return loss + 0 * norm

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses[device] = [step(batch(n, 2, 3).to(device)).item() for n in range(4)]
    agree(losses["jax"], losses["cpu"])


EITHER_CALL = pytest.mark.parametrize(
    "more", [(), (0.5,)], ids=["at the first call", "at the second call"]
)


@EITHER_CALL
def test_who_listens_to_jax_is_no_part_of_it(more: Any) -> None:
    events: list[str] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    model = nn.Linear(3, 3).to("jax")

    @Compiled
    def step(x: Tensor, scale: float = 1.0) -> Tensor:
        return model(x) * scale

    try:
        for number in range(3):
            step(batch(number, 3).to("jax"), *more)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert step.compilations == 1 and events


RUNS = 0


class Finalized:
    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        global RUNS
        RUNS += 1


@EITHER_CALL
def test_the_garbage_collector_and_what_it_calls_is_no_part_of_it(more: Any) -> None:
    def count(phase: str, info: dict[str, int]) -> None:
        global RUNS
        RUNS += 1

    held: list[Finalized] = []
    model, drop = nn.Linear(3, 3).to("jax"), held.clear

    @Compiled
    def step(x: Tensor, scale: float = 1.0) -> Tensor:
        drop()
        made = list(map(list, [()] * 100))  # at which the collector runs
        return model(x) * scale * len(made)

    threshold = gc.get_threshold()
    gc.callbacks.append(count)
    gc.freeze()
    gc.collect()  # of so little the oldest is looked at each time
    gc.set_threshold(20, 1, 1)
    try:
        for number in range(3):
            held.append(Finalized())
            step(batch(number, 3).to("jax"), *more)
            assert gc.isenabled() and (more or step.compilations == 1)
        before = RUNS
        gc.collect()
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
        gc.callbacks.remove(count)
    assert step.compilations == 1 and before + 2 <= RUNS


def test_a_debugger_may_be_at_work() -> None:
    model = nn.Linear(3, 3).to("jax")

    @Compiled
    def step(x: Tensor) -> Tensor:
        return model(x)

    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        step(batch(0, 3).to("jax"))
        assert sys.gettrace() is not None
    finally:
        sys.settrace(before)
    assert step.compilations == 0
    agree(step(batch(0, 3).to("jax")), model(batch(0, 3).to("jax")))
