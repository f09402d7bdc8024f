"""The loops that tpu-migrate writes for torch_xla: equal to CPU torch, and compiled once.

One explicit `torch_xla.sync()` a step, after the optimizer's step, and values read after it. The
first two steps may compile (the optimizer's state comes into being); later ones must not, and each
is one execution on the device.
"""

import itertools
from collections.abc import Callable, Iterable

import pytest
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as metrics
import torch_xla.distributed.parallel_loader as pl
import tpu_runtime as tpu
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, TensorDataset

tpu.setup()

DEVICE = torch.device("xla")
Loop = Callable[[nn.Module, Iterable[list[Tensor]], torch.device | str, list[tuple[int, int]]], list[float]]  # fmt: skip  # noqa: E501


def counts() -> tuple[int, int]:
    """Compilations and executions so far; what is still under way is waited for."""
    xm.wait_device_ops()
    found = [metrics.metric_data(name) for name in ("CompileTime", "ExecuteTime")]
    return tuple(data[0] if data else 0 for data in found)  # type: ignore[return-value]


def data(device: torch.device | str) -> DataLoader[list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(24, 3, generator=generator), torch.randn(24, 2, generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=4)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))


def plain(net, loader, device, seen):  # type: ignore[no-untyped-def]
    optimizer = optim.Adam(net.parameters(), 1e-2)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    losses = []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        torch_xla.sync()
        scheduler.step()
        losses.append(loss.item())
        seen.append(counts())
    return losses


def accumulating(net, loader, device, seen):  # type: ignore[no-untyped-def]
    """The sync belongs to the optimizer's step: once for two batches."""
    optimizer = optim.AdamW(net.parameters(), 1e-2)
    losses, total = [], torch.zeros((), device=device)
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = F.mse_loss(net(x), y) / 2
        loss.backward()
        total += loss.detach()  # stays on the device
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
            torch_xla.sync()
            losses.append(total.item())
            seen.append(counts())
    return losses


def evaluating(net, loader, device, seen):  # type: ignore[no-untyped-def]
    """Without an optimizer, the sync ends each batch, and what is counted stays on the device."""
    net.eval()
    total = torch.zeros((), device=device)
    with torch.inference_mode():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            total += F.mse_loss(net(x), y)
            torch_xla.sync()
            seen.append(counts())
    return [total.item()]


def two_optimizers(net, loader, device, seen):  # type: ignore[no-untyped-def]
    first = optim.SGD(net[0].parameters(), 0.1, momentum=0.9)
    second = optim.RMSprop(net[3].parameters(), 1e-2)
    losses = []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        for optimizer in (first, second):
            net.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
        seen.append(counts())
    return losses


LOOPS: dict[str, Loop] = {
    "plain": plain,
    "accumulating": accumulating,
    "evaluating": evaluating,
    "two optimizers": two_optimizers,
}


@pytest.mark.parametrize("parallel_loader", [False, True], ids=["to", "MpDeviceLoader"])
@pytest.mark.parametrize("name", LOOPS)
def test_loop(name: str, parallel_loader: bool) -> None:
    """With MpDeviceLoader the loop is the same one: its own sync then finds nothing to do.

    But it also syncs between accumulated batches: one execution a batch, of two programs.
    """
    expected_net, net = model(), model().to(DEVICE)
    expected = LOOPS[name](expected_net, data("cpu"), "cpu", [])
    loader = pl.MpDeviceLoader(data(DEVICE), DEVICE) if parallel_loader else data(DEVICE)
    seen: list[tuple[int, int]] = []
    losses = LOOPS[name](net, loader, DEVICE, seen)
    # A float32 rounding is 6e-8; Adam divides by small roots. Not the first bias: BatchNorm takes
    # it away, so that its gradient is noise (see test_training.py).
    assert losses == pytest.approx(expected, rel=1e-5)
    for key, value in expected_net.state_dict().items():
        if key not in ("0.bias", "1.running_mean"):
            assert torch.allclose(net.state_dict()[key].cpu(), value, rtol=1e-4, atol=1e-5), key
    compilations, executions = zip(*seen[1:], strict=True)
    assert compilations[-1] == compilations[1 if len(seen) > 3 else 0]
    batches = 2 if parallel_loader and name == "accumulating" else 1
    assert {b - a for a, b in itertools.pairwise(executions)} == {batches}


def descend(device: torch.device | str) -> tuple[int, Tensor]:
    """Rounds decided by a value that each reads, and no sync, as in a library."""
    x, target, rounds = torch.zeros(4).to(device), torch.arange(4.0).to(device), 0
    while (apart := target - x - 0.1 * x**3).norm().item() > 0.1:
        x, rounds = x + 0.3 * apart, rounds + 1
    return rounds, x.cpu()


def steps_of_changing_length(device: torch.device | str) -> tuple[int, Tensor]:
    """A solver that takes shorter steps where its error is large; trained through."""
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    for parameter in net.to(device).parameters():
        nn.init.constant_(parameter, 0.4)
    y, h = torch.ones(4, 2).to(device), torch.tensor(0.5).to(device)
    t, rounds = 0.0, 0
    while t < 1:
        first = net(y)
        second = net(y + h * first)
        if bool((h * (second - first)).abs().max() < 0.03):
            y, t = y + h * (first + second) / 2, t + float(h)
        h, rounds = h * 0.8, rounds + 1
    y.pow(2).sum().backward()
    return rounds, torch.cat([p.grad.reshape(-1) for p in net.parameters()]).cpu()


def fit_by_lbfgs(device: torch.device | str) -> tuple[int, Tensor]:
    """It reads values within its step, has a history that grows, and amplifies a rounding."""
    net, evaluated = model().double().to(device), []
    x, y = (part.double().to(device) for part in next(iter(data("cpu"))))
    optimizer = optim.LBFGS(net.parameters(), 0.5, max_iter=5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        evaluated.append(loss.detach())
        return loss

    for _ in range(3):
        optimizer.step(closure)
        if device != "cpu":
            torch_xla.sync()
    return len(evaluated), torch.stack(evaluated).cpu()


@pytest.mark.parametrize(
    ("loop", "most"), [(descend, 5), (steps_of_changing_length, 8), (fit_by_lbfgs, 24)]
)
def test_rounds_that_values_decide_are_compiled_once(
    loop: Callable[[torch.device | str], tuple[int, Tensor]], most: int
) -> None:
    rounds, values = loop("cpu")
    before, _ = counts()
    assert rounds > 6
    found, there = loop(DEVICE)
    assert found == rounds
    assert torch.allclose(there, values, rtol=1e-5)
    assert counts()[0] - before <= most
    before, _ = counts()
    loop(DEVICE)
    assert counts()[0] - before <= 2


def test_a_value_that_is_read_in_each_step_does_not_divide_it() -> None:
    """A condition on the batch alone, and a loss in front of the sync: three executions a step."""
    net = model().to(DEVICE)
    optimizer = optim.SGD(net.parameters(), 0.1)
    seen = [counts()]
    for x, y in data(DEVICE):
        x, y = x.to(DEVICE), y.to(DEVICE)
        optimizer.zero_grad()
        out = net(x)
        if x.abs().max() > 0:
            out = out * 2
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        assert loss.item() > 0
        torch_xla.sync()
        seen.append(counts())
    compilations, executions = zip(*seen, strict=True)
    assert compilations[-1] <= compilations[0] + 4  # the first step's are not all those of later
    assert {b - a for a, b in itertools.pairwise(executions)} == {3}
