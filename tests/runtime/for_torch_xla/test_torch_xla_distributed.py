"""Several devices on torch_xla: ranks compute what those of the original do, and copies the same.

The original runs on the CPU by gloo, a process for each rank. What the tool makes of it runs as
replicas of the CPU back end (migrator/targets/torch_xla/replicas.py). Both end with the same
parameters.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.targets.torch_xla import replicas
from tests.runtime import tpu_topologies
from tests.runtime.several_devices import (
    ACCUMULATION,
    COLLECTIVES,
    PROGRAMS,
    TWO_PARTS,
    accumulation_by_gloo,
    by_gloo,
    compare,
    compare_collectives,
    execute,
    two_parts_by_gloo,
)
from tests.runtime.sharded_models import (
    FUNCTIONAL,
    SHARDED,
    SHARDED_CASES,
    compare_functional,
    compare_sharded,
    sharded_by_gloo,
)


def migrated(source: str | Path, folder: Path, **options: Any) -> Path:
    """The script in ``source``, or of that text, as it becomes."""
    if isinstance(source, str):
        (folder / "source").mkdir(exist_ok=True)
        (folder / "source" / "script.py").write_text(source)
        source = folder / "source"
    output = folder / f"migrated{len(options)}"
    report = migrate_paths([source], "torch_xla", config=Config(**options), output=output)
    assert not report.diagnostics(Outcome.REPORTED)
    return next(p for p in output.glob("*.py"))


def on_replicas(count: int, script: Path, *arguments: object, **variables: str) -> str:
    variables = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(count), **variables}
    return execute(Path(replicas.__file__), script, *arguments, **variables)


@pytest.mark.parametrize(
    ("count", "cases"),
    [
        (2, ["clip", "uneven", "adam_norm"]),
        pytest.param(2, ["sgd", "adam"], marks=pytest.mark.thorough),
        pytest.param(4, ["sgd", "uneven", "adam_norm"], marks=pytest.mark.thorough),
    ],
)
def test_ddp_ends_with_the_parameters_of_the_ranks(
    count: int, cases: list[str], tmp_path: Path
) -> None:
    there, here = tmp_path / "gloo.pt", tmp_path / "xla.pt"
    arguments = (*cases, "--epochs", 2, "--output")
    execute(PROGRAMS / "ddp_training.py", *arguments, there, "--world-size", count)
    printed = on_replicas(count, migrated(PROGRAMS / "ddp_training.py", tmp_path), *arguments, here)
    compare(here, there, cases)
    assert f"tpu_runtime: {count} ranks, each with a device of its own (cpu)" in printed
    assert f"a batch of 4 on each of {count} ranks is {4 * count}" in printed


@pytest.mark.thorough
def test_one_rank_and_sync_batchnorm(tmp_path: Path) -> None:
    """Two ranks with SyncBatchNorm compute what one does that has the whole batch."""
    there, one, two = tmp_path / "gloo.pt", tmp_path / "one.pt", tmp_path / "two.pt"
    cases, arguments = ["adam_norm_sync", "sgd"], ("--epochs", 2, "--output")
    whole = ("--batch-size", 8)
    script = migrated(PROGRAMS / "ddp_training.py", tmp_path)
    execute(PROGRAMS / "ddp_training.py", *cases, *arguments, there, "--world-size", 1, *whole)
    printed = on_replicas(1, script, *cases, *arguments, one, *whole)
    assert "tpu_runtime: 1 rank (cpu)" in printed
    compare(one, there, cases)
    on_replicas(2, script, cases[0], *arguments, two)
    compare(two, there, cases[:1])


def test_collectives_give_what_they_give_on_gloo(tmp_path: Path) -> None:
    there, here = tmp_path / "gloo", tmp_path / "xla"
    original = tmp_path / "original.py"
    original.write_text(by_gloo(COLLECTIVES))
    execute(original, there, MASTER_ADDR="localhost")
    on_replicas(2, migrated(COLLECTIVES, tmp_path), here)
    compare_collectives(here, there)


def test_functional_collectives_and_their_gradients(tmp_path: Path) -> None:
    on_replicas(2, migrated(FUNCTIONAL, tmp_path), tmp_path / "here")
    compare_functional(tmp_path / "here")


@pytest.mark.thorough  # the class is that of torchax
def test_sharded_models_end_as_torchs(tmp_path: Path) -> None:
    there, here, original = tmp_path / "gloo.pt", tmp_path / "here.pt", tmp_path / "original.py"
    original.write_text(sharded_by_gloo())
    execute(original, there, *SHARDED_CASES, MASTER_ADDR="localhost")
    on_replicas(2, migrated(SHARDED, tmp_path), here, *SHARDED_CASES)
    compare_sharded(here, there)


GROUPS = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    device = torch.device("cuda", rank)
    own = torch.arange(4.0, device=device) + 10 * rank
    seen = {}

    def note(name, value):
        seen[name] = value.tolist()

    pair, single = dist.new_group([0, 2]), dist.new_group([1])
    group = single if rank == 1 else pair
    seen["who"] = dist.get_rank(group), dist.get_world_size(group), dist.get_rank(pair)
    for name in ("SUM", "MAX", "PRODUCT"):
        value = own.clone()
        dist.all_reduce(value, op=getattr(dist.ReduceOp, name), group=group)
        note(name, value)
    count = torch.tensor([rank, 5], device=device)
    dist.all_reduce(count, group=group)  # MEAN
    note("mean", count)
    if rank != 1:
        value = own.clone()
        dist.broadcast(value, src=2, group=pair)
        note("broadcast", value)
        parts = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(parts, own, group=pair)
        note("all_gather", torch.stack(parts))
        whole = torch.empty(8, device=device)
        dist.all_gather_into_tensor(whole, own, group=pair)
        note("all_gather_into_tensor", whole)
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank}, group=pair)
        seen["objects"] = objects
        dist.barrier(group=pair)
    norm = torch.nn.SyncBatchNorm(4, process_group=group).to(device)
    norm(torch.stack([own, own * own, own + 1]))
    seen["variance"] = norm.running_var.cpu()
    value = torch.zeros_like(own)
    if rank == 0:
        dist.send(own, dst=1)
    elif rank == 1:
        dist.recv(value)
    note("sent", value)
    value, other = torch.zeros_like(own), torch.zeros_like(own)
    work = [dist.irecv(value, (rank - 1) % ranks), dist.isend(own * 2, (rank + 1) % ranks)]
    for each in work:
        each.wait()
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.irecv, other, (rank + 1) % ranks),
        dist.P2POp(dist.isend, value, (rank - 1) % ranks),
    ])
    for work in works:
        work.wait()
    note("around", value)
    note("and back", other)
    objects = [None]
    if rank == 2:
        dist.send_object_list([{"from": rank}], dst=0, group=pair)
    elif rank == 0:
        dist.recv_object_list(objects, src=2, group=pair)
    seen["objects sent"] = objects
    everybody = dist.new_group()
    value = own.clone()
    dist.all_reduce(value, group=everybody)
    note("everybody", value)
    torch.save(seen, f"{path}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(3, sys.argv[1]), nprocs=3)
"""


def test_groups_of_some_ranks_and_exchanges_between_two(tmp_path: Path) -> None:
    there, here, original = tmp_path / "gloo", tmp_path / "xla", tmp_path / "original.py"
    text = GROUPS.replace('"nccl"', '"gloo"').replace('"cuda", rank', '"cpu"')
    # torch's SyncBatchNorm refuses the CPU
    original.write_text("".join(line for line in text.splitlines(True) if "norm" not in line))
    execute(original, there, MASTER_ADDR="localhost")
    mean = GROUPS.replace("group=group)  # MEAN", "group=group, op=dist.ReduceOp.AVG)")
    on_replicas(3, migrated(mean, tmp_path), here)
    for rank, of in enumerate((2, 1, 2)):
        expected, found = torch.load(f"{there}.{rank}"), torch.load(f"{here}.{rank}")
        expected["mean"] = [total // of for total in expected["mean"]]
        rows = [torch.arange(4.0) + 10 * r for r in ([1] if rank == 1 else [0, 2])]
        batch = torch.stack([row for own in rows for row in (own, own * own, own + 1)])
        variance = 0.9 + 0.1 * batch.var(0)
        assert torch.allclose(found.pop("variance"), variance, rtol=1e-5)
        assert found == expected


def agree(program: str, on_gloo: str, tolerance: float, folder: Path) -> None:
    """A program for GPUs, and the same for gloo, end with the same state on two ranks."""
    there, here, original = folder / "gloo.pt", folder / "xla.pt", folder / "original.py"
    original.write_text(on_gloo)
    execute(original, there, MASTER_ADDR="localhost")
    # an address as programs have it for the machines with their GPUs
    on_replicas(2, migrated(program, folder), here, MASTER_ADDR="192.0.2.1")
    expected, found = torch.load(there), torch.load(here)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= tolerance, name


def test_accumulation_unused_parameters_and_other_starts(tmp_path: Path) -> None:
    agree(ACCUMULATION, accumulation_by_gloo(), 1e-5, tmp_path)


def test_a_parameter_without_a_gradient_is_named(tmp_path: Path) -> None:
    text = ACCUMULATION.replace(", find_unused_parameters=True", "")
    script = migrated(text, tmp_path)
    missing = r"other.weight, other.bias, never.weight, never.bias: no gradient since the last"
    with pytest.raises(AssertionError, match=missing):
        on_replicas(2, script, tmp_path / "x.pt")


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    script = migrated(PROGRAMS / "ddp_training.py", tmp_path)
    with pytest.raises(AssertionError, match="set up for 3 ranks, and there are 2, one for each"):
        on_replicas(2, script, "sgd", "--output", tmp_path / "x.pt", "--world-size", 3)


@pytest.mark.thorough
def test_checkpoints_of_all_ranks(tmp_path: Path) -> None:
    program = (PROGRAMS / "rank_checkpoints.py").read_text()
    agree(program, program.replace('"nccl"', '"gloo"').replace(".to(rank)", "")
          .replace(", device_ids=[rank]", ""), 1e-5, tmp_path)  # fmt: skip


def test_backward_in_parts_and_a_pass_of_one_rank(tmp_path: Path) -> None:
    agree(TWO_PARTS, two_parts_by_gloo(), 1e-6, tmp_path)


TORCHRUN = """
import os
import sys

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
assert all(argument == f"--local_rank={rank}" for argument in sys.argv[1:])
assert "SEEN" not in os.environ
os.environ["SEEN"] = "by this process"
told = [os.environ[name] for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")]
dist.init_process_group("nccl")
torch.cuda.set_device(rank)
total = torch.full((2,), rank + 1.0, device="cuda")
dist.all_reduce(total)
if rank == 0:
    print("total", total.tolist(), dist.get_world_size(), *told)
dist.destroy_process_group()
"""


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
    printed = execute(Path(replicas.__file__), "--each", script, "--local_rank={rank}", **variables)
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
    assert "a batch of 6 can not be split over 8 devices" in printed
    expected, found = torch.load(one), torch.load(eight)
    assert list(expected) == list(found)
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= 1e-12, name


@pytest.mark.parametrize("name", tpu_topologies.ASKED)
def test_what_a_process_of_a_tpu_host_is_told(name: str) -> None:
    """The table by which the other target's ranks take their chips."""
    from torch_xla._internal.tpu import configure_topology

    assert tpu_topologies.found(configure_topology, name) == tpu_topologies.TOLD[name]
