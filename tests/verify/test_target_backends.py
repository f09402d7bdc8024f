"""backends: migrated from the words of CUDA, XPU, MPS and Vulkan, run on the real target."""

import sys
from pathlib import Path

import pytest
from target import TARGET

from migrator.verify import VerifyResult, verify_app


@pytest.fixture(scope="module")
def result() -> VerifyResult:
    return verify_app("backends", TARGET, python=Path(sys.executable))


@pytest.mark.thorough
def test_every_way_to_encode_agrees_with_the_golden(result: VerifyResult) -> None:
    assert result.error is None and result.log_tail is None
    assert [(each.name, each.reason) for each in result.outputs if not each.passed] == []
    ways = {each.name.partition(".")[0] for each in result.outputs}
    assert ways == {"engine", "encode_cuda", "encode_xpu", "encode_mps", "encode_vulkan"}
    assert result.precision is not None and result.precision.offenders == []
