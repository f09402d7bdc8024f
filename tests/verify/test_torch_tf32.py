"""Which products a recording says are in TF32."""

import runpy
from importlib.resources import as_file, files

import pytest
import torch


def test_tf32_that_the_environment_forbids_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU of Ampere, whose convolutions use it otherwise."""
    with as_file(files("migrator.verify") / "recorder" / "tf32.py") as path:
        in_tf32 = runpy.run_path(str(path))["in_tf32"]
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert in_tf32(True) and not in_tf32(False)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert not in_tf32(True)
