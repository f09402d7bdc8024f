"""The whole of it: image_ops migrated, run on the real target, compared, its programs read."""

import sys
from pathlib import Path

import pytest
from target import TARGET
from tiers import thorough_on

from migrator.verify import VerifyResult, verify_app


@pytest.fixture(scope="module")
def result() -> VerifyResult:
    return verify_app("image_ops", TARGET, python=Path(sys.executable))


@thorough_on("torch_xla")
def test_every_number_agrees_with_the_golden(result: VerifyResult) -> None:
    assert result.error is None and result.log_tail is None
    assert [(each.name, each.reason) for each in result.outputs if not each.passed] == []
    assert result.compared > 0
    assert all(step.first is not None for step in result.times)


@thorough_on("torch_xla")
def test_every_float32_dot_and_convolution_is_at_highest(result: VerifyResult) -> None:
    report = result.precision
    assert report is not None
    assert report.offenders == []
    assert report.count_dots + report.count_convs > 0
    if TARGET == "torchax" and sys.platform == "linux":
        # Read from the programs that the TPU compiler makes of them, too.
        assert report.compiled == report.compilable > 0, report.note
