"""The step counts of an optimizer's parameters: one array, and each still its own."""

import copy
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn, optim
from tpu_runtime.lazy import lazy_programs

from tests.runtime.support import batch

tpu.setup()
pytestmark = pytest.mark.usefixtures("no_programs")


def trained(device: str, steps: int = 5) -> tuple[nn.Module, optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    further(model, optimizer, device, range(steps))
    return model, optimizer


def further(model: nn.Module, optimizer: Any, device: str, numbers: range) -> None:
    for number in numbers:
        optimizer.zero_grad()
        model(batch(number, 4, 6).to(device)).square().mean().backward()
        optimizer.step()


def counts(optimizer: optim.Optimizer) -> list[Tensor]:
    return [state["step"] for state in optimizer.state.values()]


def same(model: nn.Module, other: nn.Module) -> bool:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return all(torch.allclose(a.cpu(), b.cpu(), rtol=1e-5, atol=1e-6) for a, b in pairs)


def test_a_program_counts_once_for_all_parameters() -> None:
    model, optimizer = trained("jax")
    assert [count.item() for count in counts(optimizer)] == [5.0] * 4
    assert len({id(count._elem) for count in counts(optimizer)}) == 1  # type: ignore[attr-defined]
    (program,) = lazy_programs._programs.values()
    text = program._compiled.as_text()
    assert text.count(" power(") <= 2  # the corrections of both moments
    assert same(model, trained("cpu")[0])


def test_one_that_is_changed_is_changed_alone() -> None:
    results = []
    for device in ("jax", "cpu"):
        model, optimizer = trained(device)
        counts(optimizer)[1].fill_(100.0)
        further(model, optimizer, device, range(5, 9))
        assert [count.item() for count in counts(optimizer)] == [9.0, 104.0, 9.0, 9.0]
        results.append(model)
    assert same(*results)


def test_a_parameter_that_is_skipped_in_some_steps_counts_its_own() -> None:
    results = []
    for device in ("jax", "cpu"):
        model, optimizer = trained(device)
        for parameter in model[2].parameters():  # type: ignore[index]
            parameter.requires_grad_(False)
        further(model, optimizer, device, range(5, 8))
        for parameter in model[2].parameters():  # type: ignore[index]
            parameter.requires_grad_(True)
        further(model, optimizer, device, range(8, 11))
        assert [count.item() for count in counts(optimizer)] == [11.0, 11.0, 8.0, 8.0]
        results.append(model)
    assert same(*results)


def test_counts_of_a_checkpoint_go_on() -> None:
    results = []
    for device in ("jax", "cpu"):
        model, optimizer = trained(device)
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][3]["step"] = torch.tensor(50.0)
        fresh: Any = optim.AdamW(model.parameters(), lr=1e-2)
        fresh.load_state_dict(saved)
        further(model, fresh, device, range(5, 9))
        assert [count.item() for count in counts(fresh)] == [9.0, 9.0, 9.0, 54.0]
        results.append(model)
    assert same(*results)


def test_a_step_that_is_computed_alone() -> None:
    results = []
    for device in ("jax", "cpu"):
        model, optimizer = trained(device, 1)
        for number in range(1, 4):
            optimizer.zero_grad()
            model(batch(number, 4, 6).to(device)).square().mean().backward()
            norms = [float(p.grad.norm()) for p in model.parameters() if p.grad is not None]
            assert len(norms) == 4  # everything before the step is computed
            optimizer.step()
        results.append(model)
    assert same(*results)
