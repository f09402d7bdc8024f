"""What the pages say to write by hand: it runs on torch_tpu, too, and its check passes."""

from __future__ import annotations

import pytest
from checked_cures import checked, run

from migrator.by_hand import Cure

CURES = checked("torch_tpu")


@pytest.mark.parametrize("cure", CURES, ids=[cure.key for cure in CURES])
def test_it_does_the_same(cure: Cure) -> None:
    run(cure.program)
