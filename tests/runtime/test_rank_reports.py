"""TPU_RUNTIME_REPORT with ranks: each writes what it has compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from target import TARGET

from tests.runtime.several_devices import execute, migrated
from tests.runtime.support import BACK_END, RUNTIME, run

RANKS = """
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank, fails):
    dist.init_process_group("nccl", rank=rank, world_size=2)
    x = torch.ones(3, 2, device="cuda")
    for width in range(1, 4 + 3 * rank):
        (x @ torch.ones(2, width, device="cuda")).sum().item()
    dist.barrier()
    if fails and rank == 1:
        raise RuntimeError("a fault of one rank")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(False,), nprocs=2)
"""
# torch_xla: as on a host with two chips, two processes, which in fact have a CPU each.
PROCESSES = """
import os

import torch
import torch.multiprocessing as mp


def main(rank):
    x = torch.ones(3, 2, device="cuda")
    for width in range(1, 4 + 3 * int(os.environ["PJRT_LOCAL_PROCESS_RANK"])):
        (x @ torch.ones(2, width, device="cuda")).sum().item()


if __name__ == "__main__":
    from torch_xla._internal import tpu
    import torch_xla.runtime
    tpu.num_logical_cores_per_chip = lambda: 1
    torch_xla.runtime.device_type = lambda: "TPU"
    tpu.num_local_processes = lambda: 2
    mp.spawn(main, nprocs=2)
"""
DEVICES = (
    {"JAX_NUM_CPU_DEVICES": "2", "MASTER_ADDR": "localhost"}
    if TARGET == "torchax"
    else {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "1"}
)


def figures(folder: Path) -> dict[str, Any]:
    """The reports, by the names of their files."""
    return {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_each_rank_that_is_started_reports_its_own_programs(tmp_path: Path) -> None:
    script = migrated(RANKS if TARGET == "torchax" else PROCESSES, tmp_path)
    (folder := tmp_path / "reports").mkdir()
    execute(script, **DEVICES, TPU_RUNTIME_REPORT=str(folder / "report.json"))
    found = figures(folder)
    assert found.keys() == {"report.json", "report.rank0.json", "report.rank1.json"}
    programs = {name: of_rank["programs"] for name, of_rank in found.items()}
    assert programs["report.json"] == 0 < programs["report.rank0.json"]
    assert programs["report.rank1.json"] >= programs["report.rank0.json"] + 3
    for rank in range(2 if TARGET == "torchax" else 1):  # torch_xla notes lines of the first alone
        assert any(".item()" in line["line"] for line in found[f"report.rank{rank}.json"]["lines"])


def test_lines_say_the_rank(tmp_path: Path) -> None:
    script = migrated(RANKS if TARGET == "torchax" else PROCESSES, tmp_path)
    printed = execute(script, **DEVICES, TPU_RUNTIME_REPORT="1")
    for rank in range(2):
        assert f"tpu_runtime: rank{rank}: " in printed
    assert "tpu_runtime: 0 programs compiled" in printed  # of the process that starts them


@pytest.mark.skipif(TARGET == "torch_xla", reason="on the CPU, its ranks are no processes")
@pytest.mark.parametrize("fails", [False, True])
def test_each_rank_of_torchrun_reports_its_own_programs(fails: bool, tmp_path: Path) -> None:
    start = f'main(int(os.environ["RANK"]), {fails})'
    script = migrated(RANKS.replace("mp.spawn(main, args=(False,), nprocs=2)", start), tmp_path)
    (folder := tmp_path / "reports").mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node=2", script], capture_output=True, text=True, timeout=300,
        env={**os.environ, "TPU_RUNTIME_REPORT": str(folder / "report.json")},
    )  # fmt: skip
    assert bool(done.returncode) is fails, done.stderr
    found = figures(folder)
    if fails:  # the launcher ends the other
        assert found["report.rank1.json"]["programs"] > 0
        return
    assert found.keys() == {"report.rank0.json", "report.rank1.json"}
    assert found["report.rank1.json"]["programs"] > found["report.rank0.json"]["programs"] > 0


@pytest.mark.skipif(TARGET == "torchax", reason="it has ranks on the CPU")
def test_a_rank_of_torchrun_knows_its_number(tmp_path: Path) -> None:
    """As on a TPU, whose topology it would set."""
    code = (
        "import torch_xla.runtime\n"
        "from torch_xla._internal import tpu\n"
        "kind, torch_xla.runtime.device_type = torch_xla.runtime.device_type, lambda: 'TPU'\n"
        "tpu.configure_topology = lambda *ranks: None\n"
        "import tpu_runtime\n"
        "tpu_runtime.setup()\n"
        "torch_xla.runtime.device_type = kind\n"
        "import torch; torch.ones(2, device='xla').sum().item()\n"
    )
    launched = {"TORCHELASTIC_RUN_ID": "none", "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8",
                "LOCAL_WORLD_SIZE": "4"}  # fmt: skip
    done = run(code, **launched, TPU_RUNTIME_REPORT=str(tmp_path / "report.json"))
    assert done.returncode == 0, done.stderr
    assert figures(tmp_path).keys() == {"report.rank5.json"}


def test_a_process_that_only_loads_data_writes_no_report(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, tpu_runtime\n"
        "tpu_runtime.setup()\n"
        "if __name__ == '__main__':\n"
        "    data = torch.utils.data.TensorDataset(torch.ones(4))\n"
        "    loader = torch.utils.data.DataLoader(data, num_workers=1,\n"
        "                                         multiprocessing_context='spawn')\n"
        "    assert len(list(loader)) == 4\n"
    )
    (folder := tmp_path / "reports").mkdir()
    paths = os.pathsep.join([str(RUNTIME), os.environ.get("PYTHONPATH", "")])
    report = str(folder / "report.json")
    execute(script, **BACK_END, PYTHONPATH=paths, TPU_RUNTIME_REPORT=report)
    assert figures(folder).keys() == {"report.json"}
