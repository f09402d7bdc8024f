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
