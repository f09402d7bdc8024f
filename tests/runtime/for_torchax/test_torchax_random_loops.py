"""Random training loops, held and with every statement in its place: the original's numbers."""

import sys
from collections.abc import Iterator

import pytest

from tests.runtime.support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from random_loops.harness import Harness, Outcome
from random_loops.planting import OF_TEXT

SAMPLES = [range(12), pytest.param(range(12, 104), marks=pytest.mark.thorough)]


@pytest.fixture(scope="module", params=SAMPLES, ids=repr)
def outcomes(request: pytest.FixtureRequest) -> Iterator[list[Outcome]]:
    """`benchmarks/random_loops` runs thousands of them, and each in both ways."""
    with Harness(alternates=True) as harness:
        yield list(harness.outcomes(request.param))


def test_loops_print_and_hold_what_their_originals_do(outcomes: list[Outcome]) -> None:
    assert not [outcome for outcome in outcomes if outcome.verdict != "same"]


def test_their_later_steps_run_as_held_programs(outcomes: list[Outcome]) -> None:
    assert not [outcome.seed for outcome in outcomes if not outcome.held]


@pytest.mark.parametrize("fault", OF_TEXT)
def test_a_planted_fault_is_found(fault: str) -> None:
    """A statement that stands elsewhere or is missing; in some loops that changes nothing."""
    with Harness(fault=fault, identity=True) as harness:
        found = [outcome.verdict for outcome in harness.outcomes(range(10))]
    assert found.count("differs") >= 5


def test_originals_are_the_same_twice() -> None:
    with Harness(identity=True) as harness:
        assert {outcome.verdict for outcome in harness.outcomes(range(6))} == {"same"}
