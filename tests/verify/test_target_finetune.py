"""finetune: Accelerate with PEFT's LoRA, Trainer and Lightning, trained on the real target."""

import sys
from pathlib import Path

import pytest
from target import TARGET

from migrator.verify import VerifyResult, verify_app

pytestmark = pytest.mark.thorough(f"finetune on {TARGET}")  # a minute


@pytest.fixture(scope="module")
def result() -> VerifyResult:
    return verify_app("finetune", TARGET, python=Path(sys.executable))


def test_three_frameworks_agree_with_the_golden(result: VerifyResult) -> None:
    assert result.error is None and result.log_tail is None
    assert [(each.name, each.reason) for each in result.outputs if not each.passed] == []
    programs = {each.name.partition(".")[0] for each in result.outputs}
    assert programs == {"lora", "trainer", "lightning"}
    assert result.precision is not None and result.precision.offenders == []
