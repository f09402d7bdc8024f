"""What a step costs the host: nothing is worked out by Python that is known already."""

import sys
from types import FrameType

import pytest
import torch
import torch_xla
import tpu_runtime as tpu
from torch import Tensor, nn
from torch_xla.experimental import scan as scanning

from tests.runtime.support import agree

tpu.setup()

LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "gru": lambda: nn.GRU(3, 4),
    "projected": lambda: nn.LSTM(3, 4, proj_size=2),
}
STEPS = 5


def losses(layer: nn.Module, device: str, sizes: list[int]) -> list[float]:
    layer = layer.to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.3)
    found = []
    for step, size in enumerate(sizes):
        x = torch.randn(size, 2, 3, generator=torch.Generator().manual_seed(step)).to(device)
        optimizer.zero_grad()
        loss = layer(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        found.append(loss.item())
    return found


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return LAYERS[name]()


@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer_is_built_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    stock = scanning._scan_impl_flat

    def flat(*args: object, **options: object) -> object:
        built.append(1)
        return stock(*args, **options)

    monkeypatch.setattr(scanning, "_scan_impl_flat", flat)
    losses(made(name), "xla", [7])
    once = len(built)
    sizes = [7, 5, 7, 5, 7]  # lengths have loops of their own
    there = losses(made(name), "xla", sizes)
    assert 0 < len(built) <= 2 * once
    agree(there, losses(made(name), "cpu", sizes), 2e-5)


def test_a_layer_evaluated_after_training_and_without_a_gradient_of_a_result() -> None:
    """Some gradients are None then."""

    def results(device: str) -> list[Tensor]:
        layer = made("lstm").to(device)
        x = torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(1)).to(device)
        found = []
        for of in (lambda y, h, c: y.sum(), lambda y, h, c: h.sum(), lambda y, h, c: c.sum() * 2):
            layer.zero_grad()
            output, states = layer(x)
            of(output, *states).backward()
            torch_xla.sync()
            found += [parameter.grad.cpu().clone() for parameter in layer.parameters()]
            with torch.no_grad():
                found.append(layer(x)[0].cpu())
        return found

    for there, here in zip(results("xla") + results("xla"), results("cpu") * 2, strict=True):
        agree(there, here, 2e-5)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_the_form_of_an_update_is_not_worked_out_by_python(
    kind: type[torch.optim.Optimizer],
) -> None:
    model = nn.Linear(3, 2).to("xla")
    optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.1)
    called: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "_refs" in frame.f_code.co_filename:
            called.append(frame.f_code.co_name)

    for _ in range(2):
        model(torch.ones(4, 3).to("xla")).sum().backward()
        called.clear()
        sys.setprofile(watch)
        try:
            optimizer.step()
        finally:
            sys.setprofile(None)
        torch_xla.sync()
    assert not called


@pytest.mark.parametrize("name", ["add_", "mul_", "sub_", "div_", "addcmul_", "addcdiv_", "lerp_"])
def test_a_form_that_does_not_fit_is_refused(name: str) -> None:
    x, wide, one = torch.ones(3), torch.full((2, 3), 2.0), torch.tensor([2.0])
    count = {"addcmul_": 2, "addcdiv_": 2}.get(name, 1)
    options = {"weight": 0.5} if name == "lerp_" else {}
    with pytest.raises(RuntimeError, match=r"output with shape .* match the broadcast"):
        getattr(x.clone().to("xla"), name)(*[wide.to("xla")] * count, **options)
    there = getattr(x.clone().to("xla"), name)(*[one.to("xla")] * count, **options)
    agree(there, getattr(x.clone(), name)(*[one] * count, **options))
