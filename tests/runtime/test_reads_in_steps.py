"""A run ends with a line that names what divides its steps, if something does."""

from pathlib import Path

import pytest
from target import TARGET

from tests.runtime.several_devices import execute, migrated
from tests.runtime.support import BACK_END

pytestmark = pytest.mark.skipif(TARGET == "torch_tpu", reason="its runtime has no report")

TRAINING = """
import torch

model = torch.nn.Linear(3, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for step in range(20):
    x = torch.ones(4, 3).cuda()
    y = model(x)
    loss = y.square().mean()
    {first}
    optimizer.zero_grad()
    loss.backward()
    {second}
    optimizer.step()
    {after}
"""
MEAN, NORM, LOSS = (
    "total += y.mean().item()", "total += model.weight.grad.norm().item()", "total += loss.item()",
)  # fmt: skip


def said(tmp_path: Path, report: str = "", **lines: str) -> list[str]:
    """What the runtime says of a run whose loop reads values at these places."""
    found = {name: lines.get(name, "pass") for name in ("first", "second", "after")}
    script = migrated(TRAINING.format(**found), tmp_path)
    printed = execute(script, TPU_RUNTIME_REPORT=report, **BACK_END)
    return [line for line in printed.splitlines() if line.startswith("tpu_runtime: ")]


def test_reads_in_the_middle_of_each_step_are_named(tmp_path: Path) -> None:
    (line,) = said(tmp_path, first=MEAN, second=NORM)
    assert "2 values are read before each step ends, which divides it into 3 programs" in line
    assert MEAN in line and NORM in line and "read them after the step" in line


@pytest.mark.parametrize("where", [{"after": LOSS}, {"first": MEAN, "after": LOSS}])
def test_one_read_or_reads_after_the_step_are_not(tmp_path: Path, where: dict[str, str]) -> None:
    assert not said(tmp_path, **where)


def test_reads_now_and_then_are_not(tmp_path: Path) -> None:
    first, second = f"if step % 5 == 0: {MEAN}", f"if step % 5 == 0: {NORM}"
    assert not said(tmp_path, first=first, second=second)


def test_the_report_says_it_too(tmp_path: Path) -> None:
    lines = said(tmp_path, "1", first=MEAN, second=NORM)
    assert "divides it into 3 programs" in lines[-1]
    assert not said(tmp_path, "0", first=MEAN, second=NORM)
