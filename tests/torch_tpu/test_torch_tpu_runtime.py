"""What torch_tpu computes otherwise than torch does, and its runtime mends: values, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime
from torch import nn
from torch.nn.functional import avg_pool1d

Make = Callable[[], nn.Module]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    tpu_runtime.setup()
    torch._dynamo.reset()
    yield


def trained(make: Make, x: torch.Tensor, device: str, compiled: bool) -> list[torch.Tensor]:
    """The loss, what the layer gives in evaluation, gradients and buffers after three steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[-1], x.shape[-1]), make()).to(device)
    run = torch.compile(model) if compiled else model
    for step in range(3):
        out = run(x.to(device) * (step + 1))
        weights = torch.linspace(1, 2, out.numel(), device=device).view(out.shape)
        loss = (out.square() * weights).sum()
        loss.backward()
    model.eval()
    found: list[Any] = [loss, model(x.to(device)), model[0].weight.grad, *model.buffers()]
    return [tensor.detach().cpu() for tensor in found]


LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "batch": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 6)),
    "batch-flat": (lambda: nn.BatchNorm1d(6), (8, 6)),
    "batch-cumulative": (lambda: nn.BatchNorm1d(3, momentum=None), (4, 3, 6)),
    "batch-without": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (4, 3, 6)),
    "instance": (lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (4, 3, 6)),
    "pool": (lambda: nn.AvgPool1d(2), (4, 3, 6)),
    "pool-padded": (lambda: nn.AvgPool1d(3, 2, 1, count_include_pad=False), (3, 6)),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_does_what_it_does_on_the_cpu(name: str, compiled: bool) -> None:
    make, shape = LAYERS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    here, there = trained(make, x, "cpu", False), trained(make, x, "tpu", compiled)
    for expected, found in zip(here, there, strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-4)


def test_running_statistics_are_no_part_of_the_gradient_and_stay_float32() -> None:
    layer = nn.BatchNorm1d(3).to("tpu")
    with torch.autocast("tpu", dtype=torch.bfloat16):
        layer(torch.randn(8, 3, device="tpu").bfloat16())
    assert layer.running_mean.dtype is torch.float32 and not layer.running_mean.requires_grad
    assert layer.running_mean.any()


def test_a_function_that_was_imported_before_set_up_is_replaced_too() -> None:
    x = torch.randn(2, 3, 8, device="tpu", requires_grad=True)
    assert avg_pool1d is F.avg_pool1d is torch.avg_pool1d
    assert avg_pool1d(x, 2).requires_grad


def test_float32_products_are_float32() -> None:
    for word, meant in (("high", "high"), ("default", "medium"), ("highest", "highest")):
        tpu_runtime.setup(precision=word)
        assert torch.get_float32_matmul_precision() == meant


def test_what_a_program_asks_about_its_device() -> None:
    assert "TPU" in tpu_runtime.get_device_name(0)
    assert tpu_runtime.get_device_properties("tpu").major == 0
    assert tpu_runtime.is_bf16_supported()
