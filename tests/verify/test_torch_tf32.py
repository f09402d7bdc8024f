"""Which products a recording says are in TF32."""

import runpy
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest
import torch

from migrator.verify.goldens import read_golden
from migrator.verify.originals import record_script
from migrator.verify.recordings import RecordSettings

PROGRAM = """\
import torch
from torch.nn.functional import conv1d, linear
x = torch.ones(1, 1, 4, requires_grad=True)
{computed}.sum().backward()
torch.version.cuda, torch._C._cuda_getDeviceCount = "12.8", lambda: 1
torch.cuda.get_device_capability = lambda *device: (8, 0)
"""


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


@pytest.mark.parametrize(("computed", "tf32"), [("conv1d(x, x)", True), ("linear(x, x[0])", False)])
def test_a_convolution_without_a_layer_is_in_tf32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: str, tf32: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text(PROGRAM.replace("{computed}", computed), "utf-8")
    golden = tmp_path.parent / f"{tmp_path.name}-golden"
    record_script(Path("t.py"), [], golden, Path(sys.executable), RecordSettings(roundings=1))
    assert read_golden(golden).tf32 is tf32
