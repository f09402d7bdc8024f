"""Slices and elements at positions that change from step to step: one program, right values."""

from collections.abc import Callable

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as metrics
import tpu_runtime as tpu
from torch import Tensor

tpu.setup()

STEPS, WARM = 9, 4


def compiled() -> int:
    xm.wait_device_ops()
    data = metrics.metric_data("CompileTime")
    return int(data[0]) if data else 0


def written(change: Callable[[Tensor, int], object]) -> Callable[[Tensor, int], Tensor]:
    def result(x: Tensor, i: int) -> Tensor:
        x = x.clone()
        change(x, i)
        return x

    return result


def add(x: Tensor, i: int) -> None:
    x[:, i % 4] += 1


def keep_view(x: Tensor, i: int) -> None:
    part = x[i : i + 4]
    part.mul_(3)
    part[0] = part[1]


FORMS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "batch": lambda x, i: x[3 * i : 3 * i + 3] + 1,
    "of another dimension": lambda x, i: x[2:20, :, i % 3 : i % 3 + 2] + 1,
    "every second": lambda x, i: x[i : i + 6 : 2] + 1,
    "from the end": lambda x, i: x[-i - 5 : -i - 2] + 1,
    "element": lambda x, i: x[i, 0] + x[-i - 1][1],
    "narrow": lambda x, i: x.narrow(0, i, 4) + 1,
    "mask": lambda x, i: (x > 0)[i : i + 4] & (x < 1)[i + 1 : i + 5],
    "whole numbers": lambda x, i: (x * 10).long()[i],
    "written batch": written(lambda x, i: x[3 * i : 3 * i + 3].fill_(1.5)),
    "written element": written(lambda x, i: x[i].copy_(x[i + 1])),
    "added": written(add),
    "view": written(keep_view),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_position_that_changes_compiles_nothing(form: str) -> None:
    x = torch.randn(40, 4, 6, generator=torch.Generator().manual_seed(0))
    there = x.to("xla")
    torch_xla.sync()
    counts = []
    for i in range(STEPS):
        result = FORMS[form](there, i)
        torch_xla.sync()
        counts.append(compiled())
        assert torch.equal(result.cpu(), FORMS[form](x, i))
    assert counts[-1] == counts[WARM - 1]


def test_without_a_sync_a_read_ends_a_program() -> None:
    x = torch.arange(120.0).reshape(40, 3)
    there, counts = x.to("xla"), []
    for i in range(STEPS):
        assert there[2 * i : 2 * i + 2].sum().item() == x[2 * i : 2 * i + 2].sum()
        counts.append(compiled())
    assert counts[-1] == counts[WARM - 1]


def test_positions_of_a_loop_within_a_step_stay_in_its_program() -> None:
    """A slice is faster than what is looked up."""
    there = torch.randn(6, 3).to("xla")
    names = []
    for _ in range(STEPS):
        metrics.clear_counters()
        total = sum(there[t] for t in range(6))
        torch_xla.sync()
        names.append({name for name in metrics.counter_names() if "index_select" in name})
        assert total.shape == (3,)
    assert names == [set()] * STEPS
