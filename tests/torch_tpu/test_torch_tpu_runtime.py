"""What torch_tpu computes otherwise than torch does, and its runtime mends: values, gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tpu_runtime
from torch import nn
from torch.nn.functional import avg_pool1d
from tpu_runtime import device as of_runtime

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
    "weight_norm": (lambda: nn.utils.weight_norm(nn.Linear(6, 5)), (4, 6)),
    "weight_norm of all": (lambda: nn.utils.weight_norm(nn.Linear(6, 5), dim=None), (4, 6)),
    "parametrized": (lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)), (2, 3, 6)),
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


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_numbers_are_written_by_indices_from_the_end(compiled: bool) -> None:
    def write(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[i] = 30.0
        x[:, i] = 7
        x[i, 1:] = -1
        x[-1] = x[-1] + 1
        return x.index_fill(1, i, 4.0).index_fill_(0, i[:1], 2.0)

    x, i = torch.arange(20.0).view(4, 5), torch.tensor([1, -1])
    run = torch.compile(write) if compiled else write
    assert torch.equal(run(x.to("tpu"), i.to("tpu")).cpu(), write(x, i))


@pytest.mark.parametrize("p", [0.5, 1, 2, 3])
def test_equal_points_have_a_gradient_of_zero(p: float) -> None:
    found = []
    for device in ("cpu", "tpu"):
        x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 5.0]], device=device, requires_grad=True)
        distances = F.pdist(x, p)
        (distances * torch.arange(1.0, 4.0, device=device)).sum().backward()
        found.append([distances.detach().cpu(), x.grad.cpu()])
    torch.testing.assert_close(found[1], found[0])


def test_a_loader_moves_the_tensors_of_its_batches() -> None:
    batches = [{"x": torch.ones(2), "names": ["a", "b"]}, (torch.zeros(1), 3)]
    loader = tpu_runtime.DeviceLoader(batches)
    first, (second, number) = loader
    assert first["x"].device.type == second.device.type == "tpu"
    assert (first["names"], number, len(loader)) == (["a", "b"], 3, 2)


@pytest.mark.parametrize("name", ["FloatTensor", "LongTensor", "HalfTensor", "ByteTensor"])
def test_tensor_types_make_tensors_of_the_device(name: str) -> None:
    kind, of_cpu = getattr(tpu_runtime, name), getattr(torch, name)
    for given in ([1, 2, 3], [[1], [2]]):
        made = kind(given)
        assert made.device.type == "tpu" and isinstance(made, kind)
        assert torch.equal(made.cpu(), of_cpu(given))
    assert tpu_runtime.cast(torch.ones(2, dtype=torch.int64), kind).dtype is kind.dtype


def test_an_optimizer_that_was_made_before_the_move_trains() -> None:
    found = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 4))
        model[1].weight.hint = "kept"
        tied = model[0].weight
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model.to(device)
        assert model[0].weight is tied and model[1].weight.hint == "kept"
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device=device)).square().sum().backward()
            optimizer.step()
        found.append([p.detach().cpu() for p in model.cpu().parameters()])
        assert model[0].weight is tied
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_tensors_without_dimensions_are_numbers_of_a_list(device: str) -> None:
    x = torch.arange(1, 3, dtype=torch.float64, device=device)
    for data in ([x[0], x[1]], [[x[0], 2.0], (3, x[1])]):
        assert torch.tensor(data).dtype is torch.float64
    found = torch.tensor([x[0], 2.0], dtype=torch.float32, device=device)
    assert found.tolist() == [1.0, 2.0] and found.device.type == device
    assert torch.as_tensor([x.int()[0]]).dtype is torch.int32
    assert x.new_tensor([x[1].int()]).dtype is torch.float64


PLACES: dict[str, Callable[[torch.Tensor], Any]] = {
    "a slice between": lambda i: (i, slice(None), i.flip(0)),
    "lists": lambda i: ([0, 2], slice(1, 3), [1, -1]),
    "an ellipsis between": lambda i: (i, ..., i),
    "a new dimension between": lambda i: (i, None, i),
    "a place in front": lambda i: (1, i, slice(None), i),
    "a place between": lambda i: (i, 1, i),
    "a table of indices": lambda i: (i[:, None], slice(None), i),
    "side by side": lambda i: (slice(None), i, i),
}


@pytest.mark.parametrize("name", PLACES)
def test_gradients_go_through_lists_of_indices_that_are_apart(name: str) -> None:
    found = []
    for device in ("cpu", "tpu"):
        x = torch.linspace(-1, 1, 360).view(3, 4, 5, 6).to(device).requires_grad_()
        key = PLACES[name](torch.tensor([0, 2], device=device))
        read = x[key]
        written = (read.detach() + 1).requires_grad_()
        whole = x * 1
        whole[key] = written
        (read.square().sum() + (whole**3).sum()).backward()
        found.append([t.detach().cpu() for t in (read, whole, x.grad, written.grad)])
    torch.testing.assert_close(found[1], found[0])


OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda x: x.median(),
    "several results": lambda x: x.kthvalue(2, 1)[0],
    "loss": lambda x: F.smooth_l1_loss(x, x.detach() * 2 + 1),
    "backward": lambda x: F.adaptive_max_pool2d(x[None, None], 2),
    "internal": lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(3, device=x.device)),
    "in place": lambda x: (x * 1).erfc_(),
    "out": lambda x: torch.erfc(x.detach(), out=torch.empty(0, device=x.device)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_cpu_computes_what_torch_tpu_has_not(name: str) -> None:
    found = []
    for device in ("cpu", "tpu"):
        x = torch.linspace(-1, 1, 12).square().view(3, 4).add(0.1).to(device).requires_grad_()
        result = OPERATORS[name](x)
        assert result.device.type == device
        if result.requires_grad:
            result.sum().backward()
        found.append((result.detach().cpu(), None if x.grad is None else x.grad.cpu()))
    torch.testing.assert_close(found[1], found[0])


def test_a_transformer_in_evaluation_is_no_single_operator() -> None:
    """That one multiplies float32 in bfloat16, whatever precision is set."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to("tpu").eval()
    with torch.no_grad(), torch.profiler.profile() as profile:
        layer(torch.ones(2, 3, 8, device="tpu"))
    assert not any("_transformer_encoder" in event.name for event in profile.events())


def test_accelerate_finds_the_device() -> None:
    assert os.environ["ACCELERATE_TORCH_DEVICE"] == "tpu"


def test_float32_products_are_float32() -> None:
    for word, meant in (("high", "high"), ("default", "medium"), ("highest", "highest")):
        tpu_runtime.setup(precision=word)
        assert torch.get_float32_matmul_precision() == meant


def test_what_a_program_asks_about_its_device() -> None:
    assert "TPU" in tpu_runtime.get_device_name(0)
    assert tpu_runtime.get_device_properties("tpu").major == 0
    assert tpu_runtime.is_bf16_supported()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_a_quotient_by_a_fraction_has_the_type_of_torch(dtype: torch.dtype) -> None:
    def quotients(x: torch.Tensor) -> list[torch.Tensor]:
        return [x // 2.0, 9.0 // x, torch.floor_divide(x, 2.0), x // 2]

    x = torch.tensor([5, 7], dtype=dtype)
    for found, expected in zip(quotients(x.to("tpu")), quotients(x), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found.cpu(), expected)


def test_nobody_asks_for_a_tpus_metadata_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """libtpu asks for it 30 times, a second each, at the first gradient."""
    monkeypatch.setattr(of_runtime, "Path", lambda folder: tmp_path / folder.lstrip("/"))
    for chip, asks in (("", False), ("dev/accel0", True), ("dev/vfio/0", True)):
        monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
        if chip:
            (tmp_path / chip).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / chip).touch()
        of_runtime.ask_no_metadata_without_tpu()
        assert ("TPU_SKIP_MDS_QUERY" not in os.environ) is asks
        if chip:
            (tmp_path / chip).unlink()


def test_a_devices_module_has_what_programs_for_any_accelerator_call() -> None:
    """torch_tpu lets PyTorch alone call some of these, and lacks others: torchtune and torchtitan
    stopped there."""
    module = torch.get_device_module("tpu")
    assert module.device_count() == 1 and module.current_device() == 0
    module.set_device(torch.device("tpu:0"))
    module.synchronize()
    module.empty_cache()
    module.reset_peak_memory_stats()
    assert module.max_memory_allocated() >= module.memory_allocated() >= 0
    assert "active_bytes.all.peak" in module.memory_stats()
    assert len(module.mem_get_info()) == 2
    assert module.get_device_properties(0).total_memory > 0
