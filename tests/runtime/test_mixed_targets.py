"""timm's Mixup, until timm 0.6, on the device."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
import tpu_runtime as tpu

from tests.runtime.support import DEVICE

tpu.setup()

OLD = """
import torch

def one_hot(x, num_classes, on_value=1., off_value=0., device='cuda'):
    x = x.long().view(-1, 1)
    return torch.full((x.size()[0], num_classes), off_value, device=device).scatter_(1, x, on_value)

def mixup_target(target, num_classes, lam=1., smoothing=0.0, device='cuda'):
    first = one_hot(target, num_classes, device=device)
    return first * lam + one_hot(target.flip(0), num_classes, device=device) * (1. - lam)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "timm":
            monkeypatch.delitem(sys.modules, name)
    for package in ("timm", "timm/data"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_targets_are_mixed_on_the_device(folder: Path) -> None:
    (folder / "timm" / "data" / "mixup.py").write_text(OLD)
    mixup = importlib.import_module("timm.data.mixup")
    mixed = mixup.mixup_target(torch.tensor([0, 2]).to(DEVICE), 3, 0.75)
    assert torch.allclose(mixed.cpu(), torch.tensor([[0.75, 0, 0.25], [0.25, 0, 0.75]]))
    assert mixup.one_hot(torch.tensor([1]), 2, device="cpu").tolist() == [[0, 1]]
