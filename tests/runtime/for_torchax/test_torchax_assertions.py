"""Assertions in models divide no step, and fail with their line before its results are seen."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import tpu_runtime as tpu
from torch import nn, optim
from tpu_runtime.lazy import assertions, lazy_programs

from tests.runtime.for_torchax import asserting
from tests.runtime.for_torchax.modules import GRADIENTS, parts
from tests.runtime.support import agree, batch, run

tpu.setup()
STEPS = 6


@pytest.fixture(autouse=True)
def nobody_else_catches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts the tests may stand in a `try`, in which assertions are read at once."""
    stock, own = assertions._handled, {asserting.__file__, __file__}
    monkeypatch.setattr(
        assertions, "_handled", lambda code: stock(code) if code.co_filename in own else []
    )


def losses(device: str, criterion: nn.Module, negative: int = STEPS) -> Iterator[float]:
    """Those of a loop; ``negative``: the number of a step whose targets are."""
    model = asserting.Sorted().to(device)
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    for step in range(STEPS):
        x, target = batch(step, 8, 4), batch(step, 8, 2).abs()
        target = -target if step == negative else target
        loss = criterion(model(x.to(device)), target.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def executions(criterion: nn.Module) -> int:
    """How many programs the last steps of a loop are."""
    found = []
    for _ in losses("jax", criterion):
        found.append(lazy_programs.record.calls)
    return found[-1] - found[-3]


def test_a_step_with_assertions_is_one_program() -> None:
    criterion = asserting.Criterion()
    assert executions(criterion) == 2  # of two steps
    part = parts(criterion)[GRADIENTS]
    assert part.compilations and not part.why_eager
    agree(list(losses("jax", criterion)), list(losses("cpu", criterion)))


@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_recorded_operators_read_no_assertion() -> None:
    criterion = asserting.Reading()
    assert executions(criterion) == 4  # its `.item()` divides each step, and nothing else
    agree(list(losses("jax", criterion)), list(losses("cpu", criterion)))


@pytest.mark.filterwarnings("ignore:.*is not compiled")
@pytest.mark.parametrize("kind", [asserting.Criterion, asserting.Reading])
@pytest.mark.parametrize("step", [0, 1, 4])
def test_one_that_fails_names_its_line_before_the_loss_is_read(
    kind: type[nn.Module], step: int
) -> None:
    seen = []
    with pytest.raises(AssertionError, match=r"asserting\.py:9: assert not \(b < 0\)\.any\(\)"):
        for loss in losses("jax", kind(), negative=step):
            seen.append(loss)
    assert len(seen) == step


@pytest.mark.filterwarnings("ignore:.*is not compiled")
@pytest.mark.parametrize("kind", [asserting.Catching, asserting.Either])
def test_a_condition_that_decides_something_is_read(kind: type[nn.Module]) -> None:
    here, there = (list(losses(device, kind(), negative=3)) for device in ("jax", "cpu"))
    agree(here, there)


def test_outside_of_models_an_assertion_is_read_at_once() -> None:
    x = torch.tensor([1.0, -1.0]).to("jax")
    with pytest.raises(AssertionError, match=r"^$"):
        asserting.distance(torch.zeros(1, 2).to("jax"), (x * 2)[None])


def test_what_is_never_read_fails_when_the_program_ends() -> None:
    with torch.no_grad():
        asserting.Criterion()(torch.zeros(1, 2).to("jax"), -torch.ones(1, 2).to("jax"))
    with pytest.raises(AssertionError, match=r"asserting\.py:9"):
        assertions.check()


ENDING = """
import atexit, sys
import torch, tpu_runtime
import torch.multiprocessing as mp
sys.path.insert(0, {tests!r})
import asserting

tpu_runtime.setup()

def main(index=0):
    with torch.no_grad():
        asserting.Criterion()(torch.zeros(1, 2).to("jax"), {value} * torch.ones(1, 2).to("jax"))
    print("the last line")

log = open({log!r}, "w")
log.write("a line that nobody flushes")
{main}
"""
IN_A_CHILD = """mp.start_processes(main, nprocs=1, start_method="fork")"""


@pytest.mark.parametrize(
    ("value", "status", "main"), [(1, 0, "main()"), (-1, 120, "main()"), (-1, 1, IN_A_CHILD)]
)
def test_a_program_whose_last_assertion_fails_has_not_succeeded(
    tmp_path: Path, value: int, status: int, main: str
) -> None:
    log = tmp_path / "log.txt"
    tests = str(Path(asserting.__file__).parent)
    # The interpreters that are forked for tests end in their own way.
    python = None if main == IN_A_CHILD else os.environ.get("TPU_MIGRATE_PYTHON")
    done = run(ENDING.format(tests=tests, log=str(log), value=value, main=main), python)
    assert (done.returncode, "the last line" in done.stdout) == (status, True), done.stderr
    message = "AssertionError: asserting.py:9: assert not (b < 0).any() (found when its step"
    assert (message in done.stderr) is (status != 0)
    assert log.read_text() == "a line that nobody flushes"
