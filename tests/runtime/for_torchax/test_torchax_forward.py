"""Forward passes without gradients, which compile by themselves."""

import copy
import dataclasses
import json
import pickle
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime as tpu
from torch import Tensor, nn, optim

from tests.runtime.for_torchax.modules import STEP, compiled
from tests.runtime.support import agree, batch, run

tpu.setup()


def compilations(model: nn.Module) -> int:
    return vars(model)["_tpu_runtime_parts"][" without gradients"].compilations


def pair(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The model on the CPU and on the device."""
    return model, copy.deepcopy(model).to("jax")


@pytest.fixture(autouse=True)
def no_grad() -> Any:
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 5),
    )  # fmt: skip


def test_weights_modes_and_types_that_change() -> None:
    here, there = pair(convnet())
    optimizers = [optim.SGD(m.parameters(), 0.5) for m in (here, there)]
    saved = copy.deepcopy(here.state_dict())

    def change(number: int) -> None:
        for model, optimizer in zip((here, there), optimizers, strict=True):
            device = next(model.parameters()).device
            if number == 3:
                with torch.enable_grad():
                    model(batch(50, 6, 3, 8, 8).to(device)).square().mean().backward()
                optimizer.step()
            if number == 6:
                model.load_state_dict(saved)
            if number in (9, 15):
                model.train(number == 15)
            if number == 18:
                model[1].eps = 0.5
            if number == 21:
                model[5] = nn.Linear(4, 5, bias=False).to(device)
                model[5].weight.fill_(0.3)

    for number in range(24):
        change(number)
        x = batch(number, 6, 3, 8, 8)
        agree(there(x.to("jax")), here(x), 1e-5)
        for found, expected in zip(there.buffers(), here.buffers(), strict=True):
            agree(found, expected, 1e-5)
    assert compilations(there) == 4


def test_dropout_draws_what_it_would_draw() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 4), nn.Dropout(0.3)).to("jax").train()
    x = batch(0, 8, 6).to("jax")

    def draws(call: Any) -> list[Tensor]:
        torch.manual_seed(3)
        return [call(x).cpu() for _ in range(5)]

    expected = draws(lambda x: model[2](model[1](model[0](x))))
    draws(model)
    assert all(map(torch.equal, draws(model), expected))
    assert compilations(model) == 1


def test_a_step_and_an_evaluation_keep_their_programs() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).to("jax")
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for epoch in range(3):
        model.train()
        with torch.enable_grad():
            for number in range(3):
                step(batch(number, 8, 6).to("jax"))
        model.eval()
        for number in range(3):
            model(batch(number, 8, 6).to("jax"))
        assert compiled(model) == compilations(model) == compiled(optimizer, STEP) == 1, epoch


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        out, state = self.rnn(x, state)
        return {"out": self.head(out), "state": state}


def test_a_recurrent_net_with_its_state() -> None:
    here, there = pair(Recurrent())
    states: list[Any] = [None, None]
    for number in range(5):
        x = batch(number, 2, 3, 4)
        results = [here(x, states[0]), there(x.to("jax"), states[1])]
        states = [result["state"] for result in results]
        agree(results[1]["out"], results[0]["out"], 1e-5)
        agree(states[1][0], states[0][0], 1e-5)
    assert compilations(there) == 1


class Pair(NamedTuple):
    first: Tensor
    second: int


@dataclasses.dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...]
    note: str = ""


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, kind: str = "dict", scale: float = 1.0) -> Any:
        y = self.layer(x) * scale
        if kind == "tuple":
            return y, x, None
        if kind == "named":
            return Pair(y, 3)
        if kind == "data":
            return Output(y, (y + 1, y + 2), "a note")
        return {"y": y, "n": 2}


def test_results_of_all_kinds() -> None:
    here, there = pair(Several())
    for number in range(4):
        x = batch(number, 2, 4)
        given = x.to("jax")
        agree(there(given)["y"], here(x)["y"])
        first, same, nothing = there(given, "tuple")
        assert same is given and nothing is None
        agree(first, here(x, "tuple")[0])
        named = there(given, kind="named")
        assert isinstance(named, Pair) and named.second == 3
        data = there(given, "data")
        assert isinstance(data, Output) and data.note == "a note"
        agree(data.hidden[1], here(x, "data").hidden[1])
        for scale in (0.5, 2.0, float(number)):
            agree(there(given, scale=scale)["y"], here(x, scale=scale)["y"])
    assert compilations(there) == 5  # any scale is a tensor


def test_generation() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.mix, self.head = (
                nn.Embedding(11, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 11),
            )  # fmt: skip

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.mix(self.embedding(tokens))[0][:, -1])

    here, there = pair(Decoder())

    def generate(model: nn.Module, device: str, window: int) -> list[int]:
        tokens = torch.tensor([[1, 2, 3]]).to(device)
        for _ in range(10):
            following = model(tokens[:, -window:]).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, following], 1)
        return tokens.tolist()

    assert generate(there, "jax", 20) == generate(here, "cpu", 20)  # one token longer each time
    assert compilations(there) == 0
    assert generate(there, "jax", 3) == generate(here, "cpu", 3)
    assert compilations(there) == 1


def test_a_hook_that_stores_features() -> None:
    model = convnet().to("jax").eval()
    x = [batch(number, 2, 3, 8, 8).to("jax") for number in range(6)]
    for number in range(3):
        model(x[number])
    features: list[Tensor] = []
    handle = model[3].register_forward_hook(lambda m, i, output: features.append(output))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(4):
            model(x[number])
    handle.remove()
    assert len(features) == 4
    for number in range(4):
        agree(features[number], model[3](model[2](model[1](model[0](x[number])))), 1e-5)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if x.sum() > 0 else -self.inner(x)


def test_a_branch_on_a_value_is_said_once_and_what_is_inside_compiles() -> None:
    here, there = pair(Branches())
    with pytest.warns(UserWarning, match="Branches without gradients is not compiled") as said:
        for model in (there, copy.deepcopy(there)):
            for number in range(6):
                agree(model(batch(number, 2, 4).to("jax")), here(batch(number, 2, 4)))
    assert len(said) == 1
    assert compilations(there) == 0 and compilations(there.inner) == 1


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.layer(x)
        return self.last * 2


def test_python_state_of_a_module() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in (Counts, Remembers):
            here, there = pair(kind())
            for number in range(5):
                x = batch(number, 2, 4)
                agree(there(x.to("jax")), here(x))
                if kind is Remembers:
                    agree(there.last, here.last)
                else:
                    assert there.calls == here.calls


def test_autocast_is_another_program() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to("jax")
    x = batch(0, 2, 4).to("jax")
    for _ in range(4):
        assert model(x).dtype == torch.float32
        with tpu.autocast():
            assert model(x).dtype == torch.bfloat16
    assert compilations(model) == 2
    model.bfloat16()
    for _ in range(3):
        assert model(x.bfloat16()).dtype == torch.bfloat16


def test_what_is_not_for_it_is_left_alone() -> None:
    model = convnet()
    for _ in range(3):
        model(batch(0, 2, 3, 8, 8))  # on the CPU
    assert "_tpu_runtime_parts" not in vars(model)
    model.to("jax")
    x = batch(0, 2, 3, 8, 8).to("jax")
    for _ in range(3):
        model(x)
    assert not vars(copy.deepcopy(model)).get("_tpu_runtime_parts")
    shallow = copy.copy(model)
    shallow._modules = dict(model._modules) | {"5": nn.Identity()}
    assert shallow(x).shape == (2, 4)
    assert isinstance(pickle.loads(pickle.dumps(model)), nn.Sequential)


def test_a_result_may_be_used_and_written_later() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to("jax")
    results = [model(batch(number, 2, 4).to("jax")) for number in range(4)]
    expected = [F.relu(model[0](batch(number, 2, 4).to("jax"))) for number in range(4)]
    results[3].mul_(0)
    for found, wanted in zip(results[:3], expected, strict=False):
        agree(found, wanted)


PROGRAM = """
import torch, tpu_runtime
from torch import nn
tpu_runtime.setup()
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to("jax")
optimizer = torch.optim.SGD(model.parameters(), 0.1)

class Reads(nn.Module):
    def forward(self, x):
        return x * x.sum().item()

reads = Reads()
x = torch.ones(2, 4).to("jax")
for size in (2, 2, 2, 1):
    optimizer.zero_grad()
    model(x[:size]).mean().backward()
    optimizer.step()
    reads(x)
with torch.no_grad():
    for _ in range(5):
        model(x)
"""


def test_the_report_names_modules_and_optimizers(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run(PROGRAM, TPU_RUNTIME_REPORT=str(file))
    assert not done.returncode, done.stderr
    figures = json.loads(file.read_text())
    found = {kept["name"]: kept for kept in figures["functions"]}
    model, reads = found["Sequential with gradients"], found["Reads with gradients"]
    assert (model["calls"], model["programs"]) == (4, 2)
    assert not reads["programs"] and "reads a value" in reads["why_eager"]
    assert found["SGD.step()"]["programs"] == 1
    assert found["Sequential without gradients"]["programs"] == 1
    assert "Sequential with gradients: 4 calls, 2 programs" in figures["text"]


class Cache(nn.Module):
    def forward(self, cache: Tensor, x: Tensor, place: Tensor) -> Tensor:
        cache.index_copy_(0, place, x)
        return cache.sum(0)


def test_what_is_written_to_stays_where_it_is_unless_somebody_else_has_it() -> None:
    model, cache = Cache(), torch.zeros(64, 8).to("jax")
    expected = torch.zeros(64, 8)

    def write(number: int) -> None:
        x, place = batch(number, 1, 8), torch.tensor([number])
        with torch.no_grad():
            total = model(cache, x.to("jax"), place.to("jax"))
            agree(total, Cache()(expected, x, place))

    for number in range(3):
        write(number)
    address = cache.jax().unsafe_buffer_pointer()
    write(3)
    assert cache.jax().unsafe_buffer_pointer() == address
    kept = cache.jax()
    write(4)
    assert not kept.is_deleted() and float(abs(kept[4]).sum()) == 0
    agree(cache, expected)
