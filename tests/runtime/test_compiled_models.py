"""In the place of torch.compile and of a scaler: their names and states; on both targets."""

import copy

import pytest
import torch
import tpu_runtime as tpu
from torch import nn

from tests.runtime.support import DEVICE, on_device

tpu.setup()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return nn.functional.dropout(self.layer(x), 0.5, self.training)

    def reset(self) -> str:
        self.calls = 0
        return "reset"


def test_a_compiled_model_is_what_torch_makes_of_it() -> None:
    net = Net()
    stock, ours = torch.compile(net, backend="eager"), tpu.compile(net, mode="max-autotune")
    assert list(ours.state_dict()) == list(stock.state_dict())
    for names in ("named_parameters", "named_modules", "named_children"):
        ours_names, stock_names = ([n for n, _ in getattr(m, names)()] for m in (ours, stock))
        assert ours_names == stock_names
    assert ours._orig_mod is net and ours.layer is net.layer and ours.reset() == "reset"
    ours.calls, ours.note = 5, "new"
    assert net.calls == 5 and net.note == "new"
    del ours.note
    assert not hasattr(net, "note") and not hasattr(ours, "note")
    ours.eval()
    assert not net.training and not ours.training and not net.layer.training
    net.train()
    assert ours.training
    with pytest.raises(AttributeError):
        _ = ours.absent


def test_a_compiled_model_on_the_device() -> None:
    net = Net().eval()
    ours = tpu.compile(net).to(DEVICE)
    assert isinstance(ours, tpu.compilation.compiled_module.CompiledModule)
    assert torch.allclose(ours(on_device()).cpu(), Net.forward(net.cpu(), on_device().cpu()))
    twin = copy.deepcopy(ours)
    twin.load_state_dict({name: 0 * w for name, w in ours.state_dict().items()})
    assert not twin.layer.weight.any() and ours.layer.weight.any()


def test_a_function_stays_as_it_is() -> None:
    @tpu.compile
    def one(x: int) -> int:
        return x + 1

    @tpu.compile(dynamic=True)
    def two(x: int) -> int:
        return x + 2

    assert one(1) == 2 and two(1) == 3


def test_a_scaler_keeps_the_state_of_a_gpu() -> None:
    scaler, stock = tpu.GradScaler(512.0), torch.amp.GradScaler("cpu", 512.0)
    assert not scaler.is_enabled() and scaler.state_dict() == stock.state_dict()
    stock.load_state_dict(scaler.state_dict())
    state = {**stock.state_dict(), "scale": 2048.0, "_growth_tracker": 7}
    scaler.load_state_dict(state)
    scaler.load_state_dict({})  # of a program that was migrated without it
    assert scaler.state_dict() == state
    x = on_device()
    assert scaler.scale(x) is x
    assert tpu.GradScaler(enabled=False).state_dict() == {}


def test_a_model_that_is_back_on_the_cpu_is_exported() -> None:
    net, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).to(DEVICE), torch.ones(1, 3)
    expected = net(x.to(DEVICE)).cpu()
    program = torch.export.export(net.cpu(), (x,))
    assert torch.allclose(program.module()(x), expected, atol=1e-5)
