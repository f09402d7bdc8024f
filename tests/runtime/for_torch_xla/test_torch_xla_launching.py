"""How ranks start on torch_xla, what each is told, and how they fail."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from migrator.targets.torch_xla import replicas
from tests.runtime import tpu_topologies
from tests.runtime.several_devices import PROGRAMS, execute, migrated, on_ranks

TORCHRUN = """
import builtins
import os
import sys

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
assert all(argument == f"--local_rank={rank}" for argument in sys.argv[1:])
assert "SEEN" not in os.environ
os.environ["SEEN"] = "by this process"
if rank > 0:
    builtins.print = lambda *_: None
told = [os.environ[name] for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")]
dist.init_process_group("nccl")
torch.cuda.set_device(rank)
total = torch.full((2,), rank + 1.0, device="cuda")
dist.all_reduce(total)
if rank == 0:
    print("total", total.tolist(), dist.get_world_size(), *told)
dist.destroy_process_group()
"""


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    script = migrated(PROGRAMS / "ddp_training.py", tmp_path)
    with pytest.raises(AssertionError, match="set up for 3 ranks, and there are 2, one for each"):
        on_ranks(2, script, "sgd", "--output", tmp_path / "x.pt", "--world-size", 3)


MODULES = """
import counted, hydra

for module in (counted, hydra):
    module.ranks.append(rank)
    dist.barrier()
    assert module.ranks == [rank], module
    assert sys.modules[module.__name__] is module
"""


def test_a_script_for_torchrun(tmp_path: Path) -> None:
    """Each rank has an environment and modules of its own."""
    end = "dist.destroy_process_group()"
    script = migrated(TORCHRUN.replace(end, MODULES + end), tmp_path)
    libraries = tmp_path / "site-packages"
    libraries.mkdir()
    for file in (script.parent / "counted.py", libraries / "hydra.py"):
        file.write_text("ranks = []\n")
    variables = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "2", "PYTHONPATH": str(libraries)}
    with socket.create_server(("localhost", 0)) as taken:  # as by another run
        variables["MASTER_PORT"] = str(taken.getsockname()[1])
        each = [Path(replicas.__file__), "--each", script, "--local_rank={rank}"]
        printed = execute(*each, **variables)
    assert "total [3.0, 3.0] 2 2 localhost" in printed


def test_torchrun_starts_no_more_ranks_than_devices(tmp_path: Path) -> None:
    """On the CPU each process has all devices; torch_xla alone makes two programs of it."""
    script = migrated(TORCHRUN, tmp_path)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--master-port=0",
    ]
    done = subprocess.run(
        [*command, script], env={**os.environ, "PJRT_DEVICE": "CPU"}, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "torch_xla has one process for all devices of the CPU" in done.stderr


FAILURE = """
import os
import sys
import time

import torch
import torch.multiprocessing as mp

device = torch.device("cuda")
torch.manual_seed(0)  # reaches the device of a rank, and leaves that of this process alone


def main(rank):
    torch.ones(2).cuda().sum().item()
    if os.environ["PJRT_LOCAL_PROCESS_RANK"] == "1":
        raise RuntimeError("a fault of one rank")
    time.sleep(600)


if __name__ == "__main__":
    print(torch.cuda.device_count(), "device")
    from torch_xla._internal import tpu
    import torch_xla.runtime
    tpu.num_logical_cores_per_chip = lambda: 1
    # As on a host with two chips: two processes, which in fact have a CPU each.
    torch_xla.runtime.device_type = lambda: "TPU"
    tpu.num_local_processes = lambda: 2
    assert torch.cuda.device_count() == 2 and torch.cuda.is_available()
    mp.spawn(main, nprocs=2)
"""


def test_a_rank_that_fails_ends_all(tmp_path: Path) -> None:
    script, start = migrated(FAILURE, tmp_path), time.monotonic()
    with pytest.raises(AssertionError) as failure:
        execute(script, PJRT_DEVICE="CPU", CPU_NUM_DEVICES="1")
    assert time.monotonic() - start < 100
    assert "1 device" in str(failure.value)
    assert 'raise RuntimeError("a fault of one rank")' in str(failure.value)


SEED = """
import torch
import torch.multiprocessing as mp

torch.manual_seed(7)


def main(rank):
    drawn = torch.rand(4, device="cuda")
    torch.manual_seed(7)
    print("the same:", torch.equal(drawn, torch.rand(4, device="cuda")))


if __name__ == "__main__":
    mp.spawn(main, nprocs=1)
"""


def test_a_seed_that_is_set_before_the_rank_starts_reaches_its_device(tmp_path: Path) -> None:
    assert "the same: True" in execute(migrated(SEED, tmp_path), PJRT_DEVICE="CPU")


def test_a_device_that_is_used_too_early_is_said(tmp_path: Path) -> None:
    text = FAILURE.replace("    print(", '    torch.ones(2, device="cuda")\n    print(')
    text = text.replace("    assert torch.cuda.device_count() == 2", "    assert True")
    with pytest.raises(AssertionError, match=r"device was used before torch_xla\.launch"):
        execute(migrated(text, tmp_path), PJRT_DEVICE="CPU")


COPIES = """
import sys

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
model = model.double().cuda()
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(6):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16 if step < 5 else 6, 4, generator=generator, dtype=torch.float64)
    optimizer.zero_grad()
    loss = model(x if isinstance(model, nn.DataParallel) else x.cuda()).square().mean()
    loss.backward()
    optimizer.step()
print("loss", repr(loss.item()))
torch.save(model.state_dict(), sys.argv[1])
"""


def test_copies_compute_what_one_device_does(tmp_path: Path) -> None:
    """BatchNorm sees the whole batch; the last batch does not divide."""
    script, one, eight = migrated(COPIES, tmp_path), tmp_path / "1.pt", tmp_path / "8.pt"
    alone, devices = migrated(COPIES, tmp_path, num_cores="1"), {"CPU_NUM_DEVICES": "8"}
    assert "devices" not in execute(alone, one, PJRT_DEVICE="CPU", **devices)
    printed = execute(script, eight, PJRT_DEVICE="CPU", **devices)
    assert "tpu_runtime: 8 devices (cpu)" in printed
    assert "a batch of 16 is 2 on each of 8 devices" in printed
    assert "a batch of 6 cannot be split over 8 devices" in printed
    expected, found = torch.load(one), torch.load(eight)
    assert list(expected) == list(found)
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= 1e-12, name


@pytest.mark.parametrize("name", tpu_topologies.ASKED)
def test_what_a_process_of_a_tpu_host_is_told(name: str) -> None:
    """The table by which the other target's ranks take their chips."""
    from torch_xla._internal.tpu import configure_topology

    assert tpu_topologies.found(configure_topology, name) == tpu_topologies.TOLD[name]
