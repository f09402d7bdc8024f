"""Forecasts beside published times, as benchmarks/forecasts.json has them."""

import json
import sys

from helpers import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
from forecasts import PROGRAMS, RATIOS, RESULTS, bound, key

FOUND = json.loads(RESULTS.read_text("utf-8"))


def test_all_programs_have_results() -> None:
    assert set(FOUND) == {key(program) for program in PROGRAMS}


def test_nothing_ran_faster_than_its_bound() -> None:
    assert [p.name for p in PROGRAMS if bound(FOUND[key(p)]) > p.published] == []


def test_ratios_are_within_a_quarter() -> None:
    seconds = {program.name: FOUND[key(program)]["estimate"] for program in PROGRAMS}
    for name, _, published, _, ratio in RATIOS:
        assert abs(ratio(lambda program: seconds[program]) / published - 1) < 0.25, name
