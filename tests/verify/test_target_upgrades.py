"""An original that only starts once its old names are upgraded, too."""

import sys
from pathlib import Path

import pytest

from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_verification import verify_against

from .small_scripts import ON_TARGET

OLD = """\
import numpy as np
import torch
from torch._six import inf

torch.manual_seed(0)
model = torch.nn.Linear(3, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(4, 3).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(np.float(loss.item()) if loss.item() < inf else 0)
"""


def test_the_original_is_upgraded_where_it_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(OLD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = RunOptions(python=Path(sys.executable))
    result = verify_against(
        Path("train.py"), [], ON_TARGET, None, RecordSettings(roundings=1), options
    )
    assert result.passed, (result.error, result.problems)
    said = "the original does not run with these versions of its libraries, so it got 2 upgrades"
    assert any(note.startswith(said) for note in result.notes), result.notes
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == OLD


def test_an_original_with_a_fault_of_its_own_is_not_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(2).cuda()\n1 / 0\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    options = RunOptions(python=Path(sys.executable))
    result = verify_against(Path("train.py"), [], ON_TARGET, None, RecordSettings(), options)
    assert result.error is not None and "ZeroDivisionError" in result.error
