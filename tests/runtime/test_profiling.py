"""torch.profiler's interface takes traces of the device that TensorBoard and XProf open."""

import gzip
import json
from pathlib import Path

import pytest
from helpers import COPY
from target import TARGET

from migrator import migrate_paths
from tests.runtime.several_devices import execute

PROGRAM = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

model, x = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64).cuda()
both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(
    activities=both,
    schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=tensorboard_trace_handler("log"),
) as profiler:
    for _ in range(9):
        model(x).sum().item()
        profiler.step()
print(profiler.key_averages().table(sort_by="cuda_time_total"))
with profile(record_shapes=True) as profiler:
    model(x)
profiler.export_chrome_trace("out/trace.json")
"""


def test_traces_of_a_schedule_and_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpu.py").write_text(PROGRAM)
    migrate_paths([tmp_path / "gpu.py"], target=TARGET, config=COPY, output=tmp_path / "tpu")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    printed = execute(tmp_path / "tpu" / "gpu.py", JAX_PLATFORMS="cpu", PJRT_DEVICE="CPU")
    assert "in the trace" in printed
    log = tmp_path / "log"
    chrome = [json.loads(path.read_text()) for path in log.glob("*.pt.trace.json")]
    assert len(chrome) == 2  # a round of the schedule each
    assert all(trace["traceEvents"] for trace in chrome)
    for folder in (log, tmp_path / "out"):
        assert list(folder.glob("plugins/profile/*/*.xplane.pb"))
        for path in folder.glob("plugins/profile/*/*.trace.json.gz"):
            assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
