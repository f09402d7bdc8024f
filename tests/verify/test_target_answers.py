"""The questions of benchmarks/answers: what is reported, and a sample of what `verify` says."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from .small_scripts import ON_TARGET

ANSWERS = SimpleNamespace(
    **runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "answers" / "__main__.py"))
)


def test_there_are_twenty_of_at_least_eight_kinds_with_three_wrong_answers_each() -> None:
    questions = [ANSWERS.question(name) for name in ANSWERS.names()]
    assert len(questions) == 20 and len({asked.kind for asked in questions}) >= 8
    assert all(len({wrong.part for wrong in asked.wrong}) == 3 for asked in questions)


@pytest.mark.parametrize("name", ANSWERS.names())
def test_what_is_asked_is_reported_and_the_right_answer_leaves_nothing(
    tmp_path: Path, name: str
) -> None:
    asked = ANSWERS.question(name)
    assert ANSWERS.left(asked, asked.before, ON_TARGET, tmp_path)
    assert ANSWERS.left(asked, asked.right, ON_TARGET, tmp_path) == []


def test_a_right_answer_is_accepted_and_wrong_ones_are_named(tmp_path: Path) -> None:
    judge = ANSWERS.Judge(ON_TARGET, Path(sys.executable), tmp_path)
    asked = ANSWERS.question("rms_norm_function")
    result = judge.verify(asked, asked.right)
    assert result.passed, (result.error, result.problems, ANSWERS.said(result), result.log_tail)
    for wrong in asked.wrong[:2]:  # an output, and a gradient
        result = judge.verify(asked, wrong.part)
        assert result.error is None and not result.passed, wrong.what
        assert {*ANSWERS.said(result)} & {*wrong.named}, ANSWERS.said(result)
