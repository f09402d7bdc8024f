"""Libraries whose failing import nothing notes: what is used of them is looked at all the same."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, migrated, run

HEAD = "import torch\n"
USE = "if args.sync:\n    model = apex.parallel.convert_syncbn_model(model)\n"
DONE = "if args.sync:\n    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("handler", ["pass", "print('no apex')", "..."])
def test_its_uses_are_rewritten(handler: str, target: str) -> None:
    guarded = f"try:\n    import apex\nexcept ImportError:\n    {handler}\n"
    assert migrated(HEAD + guarded + USE, target) == HEAD + guarded + DONE


@pytest.mark.parametrize("target", TARGETS)
def test_or_reported(target: str) -> None:
    guarded = "try:\n    import apex\nexcept ImportError:\n    pass\n"
    source = f"{HEAD}{guarded}o = apex.optimizers.FusedLAMB(p)\n"
    found = [d for d in constructs(run(source, target)) if d.outcome == "reported"]
    assert [d.construct for d in found] == ["apex.optimizers.FusedLAMB"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "noted",
    [
        "try:\n    import apex\nexcept ImportError:\n    apex = None\n",
        "try:\n    import apex\n    found = True\nexcept ImportError:\n    found = False\n",
        "try:\n    import apex\nexcept ImportError:\n    pass\nelse:\n    found = True\n",
    ],
)
def test_what_the_program_asks_about_stays(noted: str, target: str) -> None:
    assert migrated(HEAD + noted + USE, target) == HEAD + noted + USE
