"""Mutants of real scripts: a few of those that benchmarks/mutants.py makes by the thousand."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
from helpers import REPOSITORY, errors, outcomes, run


@pytest.fixture(scope="module")
def mutants() -> dict[str, Any]:
    return runpy.run_path(str(REPOSITORY / "benchmarks" / "mutants.py"))


@pytest.mark.parametrize("number", range(1, 13))
def test_invariants_of_a_mutant(number: int, mutants: dict[str, Any]) -> None:
    assert mutants["check"](7, number) == []


def test_a_rank_as_a_key() -> None:
    result = run(
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "seen = {dist.get_rank(): torch.ones(1).cuda()}\n",
        entry=True,
    )
    assert not errors(result)
    assert outcomes(result)


def test_a_second_loop_over_the_same_name_reads_nothing_of_the_first() -> None:
    loop = (
        "for x in xs:\n    opt.zero_grad()\n    loss = net(x).mean()\n    loss.backward()\n"
        "    opt.step()\n    for p in net.parameters():\n        p.data.clamp_(-1, 1)\n"
    )
    result = run(f"import torch\nnet = torch.nn.Linear(2, 2).cuda()\n"
                 f"opt = torch.optim.SGD(net.parameters(), 0.1)\n{loop}{loop}")  # fmt: skip
    assert result.source.count(b"@tpu_runtime.train_step") == 2


LOOPS = """\
import torch
net, head = torch.nn.Linear(2, 2).cuda(), torch.nn.Linear(2, 2).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
other = torch.optim.SGD(head.parameters(), 0.1)
for x in xs:
    target = net(x)
    loss = target.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
for x in xs:
{}
    loss = (head(x) - target).mean()
    other.zero_grad()
    loss.backward()
    other.step()
"""


@pytest.mark.parametrize(
    "given",
    [
        "    with torch.no_grad():\n        target = net(x)",
        "    if x.dim() > 1:\n        target = net(x)\n    else:\n        target = head(x)",
    ],
)
def test_a_value_that_a_block_surely_gives_is_that_of_no_other_loop(given: str) -> None:
    result = run(LOOPS.format(given))
    assert result.source.count(b"@tpu_runtime.train_step") == 2
    assert run(result.source).source == result.source


@pytest.mark.parametrize(
    "given",
    [
        "    if x.dim() > 1:\n        target = net(x)",
        "    with guard():\n        target = net(x)",  # may go on for an error
        "    for x in x:\n        target = net(x)",
    ],
)
def test_one_that_a_block_may_leave_as_it_was_is(given: str) -> None:
    result = run(LOOPS.format(given))
    assert b"    target, loss = step(x)" not in result.source
    assert any("target is used again" in d.message for d in result.diagnostics)
