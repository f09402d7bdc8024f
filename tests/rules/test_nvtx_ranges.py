"""CUD006: ranges of nvtx, which torch's `record_function` takes only as they stand."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, migrated, run

from migrator.diagnostics import Outcome


@pytest.mark.parametrize("target", TARGETS)
def test_a_range_marks_the_same_lines(target: str) -> None:
    text = 'import torch\n\n\n@torch.cuda.nvtx.range("step")\ndef step():\n    pass\n'
    assert '@torch.profiler.record_function("step")' in migrated(text, target, entry=False)


@pytest.mark.parametrize("given", ['"{}", 1', '"{n}", n=1', "*names", ""])
def test_a_message_that_is_formatted_is_reported(given: str) -> None:
    result = run(f"import torch\nwith torch.cuda.nvtx.range({given}):\n    pass\n")
    assert [d.outcome for d in constructs(result)] == [Outcome.REPORTED]
