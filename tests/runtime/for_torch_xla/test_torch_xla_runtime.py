"""What torch_xla alone promises of tpu_runtime; the rest is in test_contract.py."""

import json
from pathlib import Path

import pytest
import torch
import torch_xla
import tpu_runtime as tpu

from tests.runtime.support import run

tpu.setup()


def test_a_tpu_that_is_not_used_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch_xla, "_found_libtpu", False)
    monkeypatch.setattr("torch_xla._internal.tpu.num_available_chips", lambda: 0)
    tpu.device.look_for_libtpu()
    assert capsys.readouterr().err == ""  # there is none
    monkeypatch.setattr("torch_xla._internal.tpu.num_available_chips", lambda: 4)
    tpu.device.look_for_libtpu()
    assert "pip install 'torch==2.9.0' 'torch_xla[tpu]==2.9.0'" in capsys.readouterr().err
    monkeypatch.setattr(torch_xla, "_found_libtpu", True)
    tpu.device._told.clear()
    tpu.device.look_for_libtpu()
    assert capsys.readouterr().err == ""


def test_setup_does_not_start_the_runtime() -> None:
    done = run(
        "import tpu_runtime as t, torch_xla, warnings; warnings.simplefilter('error'); t.setup();"
        "t.setup('high'); t.is_available(); t.Event(); t.autocast();"
        "print(torch_xla._XLAC._xla_runtime_is_initialized(),"
        "torch_xla.backends.get_mat_mul_precision())"
    )
    assert done.stdout.split() == ["False", "high"], done.stderr
    assert "multiple times" not in done.stderr


def test_a_report_of_the_run_is_written_on_request(tmp_path: Path) -> None:
    code = (
        "import torch, torch_xla, tpu_runtime\n"
        "tpu_runtime.setup()\n"
        "for rows in range(2, 14):\n"
        "    x = torch.ones(rows, 3).to('xla')\n"
        "    y = torch.nonzero(x @ x.T)\n"
        "    torch_xla.sync()\n"
    )

    script = tmp_path / "growing.py"
    script.write_text(code)

    def said(where: str) -> str:
        return run(
            f"import runpy; runpy.run_path({str(script)!r})", TPU_RUNTIME_REPORT=where
        ).stderr

    lines = [line for line in said("1").splitlines() if line.startswith("tpu_runtime: ")]
    assert "the last in step 12 of 12 (shapes" in lines[0]
    assert "on the CPU: aten::nonzero 12 times" in lines[0]
    assert lines[1].endswith("compiled at growing.py:5: y = torch.nonzero(x @ x.T)")
    (warning,) = (line for line in said("").splitlines() if line.startswith("tpu_runtime: "))
    assert "12 of 12 steps were compiled" in warning and "drop_last=True" in warning
    assert "tpu_runtime" not in said(str(tmp_path / "report.json"))
    figures = json.loads((tmp_path / "report.json").read_text())
    assert figures["programs"] >= 12 and figures["steps"] == figures["last_compiled"] == 12


def test_what_is_on_the_cpu_is_saved_without_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a data loader keep what they have computed; there a sync can wait forever."""
    synced: list[None] = []
    monkeypatch.setattr(torch_xla, "sync", lambda: synced.append(None))
    tpu.save({"x": torch.ones(3)}, tmp_path / "x.pt")
    assert not synced
    tpu.save([torch.ones(2).to("xla"), torch.ones(3).to("xla")], tmp_path / "x.pt")
    assert len(synced) == 1
