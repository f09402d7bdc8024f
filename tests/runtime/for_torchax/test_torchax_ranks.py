"""Ranks on torchax: a process for each device computes what the original's processes do by gloo."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers import thorough_but

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Outcome
from tests.runtime import tpu_topologies
from tests.runtime.several_devices import (
    ACCUMULATION,
    COLLECTIVES,
    IN_16_BITS,
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


def migrated(source: str | Path, folder: Path) -> Path:
    """The script in ``source``, or of that text, as it becomes."""
    if isinstance(source, str):
        (folder / "source").mkdir(exist_ok=True)
        (folder / "source" / "script.py").write_text(source)
        source = folder / "source"
    output = folder / "migrated"
    report = migrate_paths([source], "torchax", config=Config(), output=output)
    assert not report.diagnostics(Outcome.REPORTED)
    return next(p for p in output.glob("*.py"))


def on_ranks(count: int, script: Path, *arguments: object, **variables: str) -> str:
    variables = {"JAX_NUM_CPU_DEVICES": str(count), "MASTER_ADDR": "localhost", **variables}
    return execute(script, *arguments, **variables)


def torchrun(
    script: Path, *arguments: object, **variables: str
) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc-per-node=2", script, *map(str, arguments)],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


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
    there, here = tmp_path / "gloo.pt", tmp_path / "jax.pt"
    arguments = (*cases, "--epochs", 2, "--output")
    execute(PROGRAMS / "ddp_training.py", *arguments, there, "--world-size", count)
    script = migrated(PROGRAMS / "ddp_training.py", tmp_path)
    printed = on_ranks(count, script, *arguments, here, JAX_ENABLE_X64="1")
    compare(here, there, cases)
    assert f"tpu_runtime: {count} ranks, each with a device of its own (cpu)" in printed
    assert f"a batch of 4 on each of {count} ranks is {4 * count}" in printed


def test_sync_batchnorm_sees_the_batches_of_all_ranks(tmp_path: Path) -> None:
    """Two ranks with SyncBatchNorm compute what one does that has the whole batch."""
    there, here = tmp_path / "gloo.pt", tmp_path / "jax.pt"
    arguments = ("adam_norm_sync", "--epochs", 2, "--output")
    execute(PROGRAMS / "ddp_training.py", *arguments, there, "--world-size", 1, "--batch-size", 8)
    script = migrated(PROGRAMS / "ddp_training.py", tmp_path)
    on_ranks(2, script, *arguments, here, JAX_ENABLE_X64="1")
    compare(here, there, ["adam_norm_sync"])


def test_collectives_give_what_they_give_on_gloo(tmp_path: Path) -> None:
    there, here, original = tmp_path / "gloo", tmp_path / "jax", tmp_path / "original.py"
    original.write_text(by_gloo(COLLECTIVES))
    execute(original, there, MASTER_ADDR="localhost")
    on_ranks(2, migrated(COLLECTIVES, tmp_path), here)
    compare_collectives(here, there)


AGAIN_AND_AGAIN = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank, ranks):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    shapes = [(512, 128), (8, 128, 128), (2, 128, 512)]
    given = [[torch.full(s, k + 10.0 * rank, device="cuda") for k in range(4)] for s in shapes]
    for i in range(60):
        parts = [torch.empty(s[0] // 2, *s[1:], device="cuda") for s in shapes]
        for part, tensors in zip(parts, given):
            dist.reduce_scatter_tensor(part, tensors[i % 4])
        for part in parts:
            wrong = (part.cpu() != 2 * (i % 4) + 10).sum().item()
            assert not wrong, f"exchange {i}: {wrong} elements are not the sum"
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2,), nprocs=2)
"""


def test_parts_of_sums_are_not_written_to_by_the_next_exchange(tmp_path: Path) -> None:
    """As by JAX's own operator on the CPU, in some of a hundred exchanges."""
    on_ranks(2, migrated(AGAIN_AND_AGAIN, tmp_path))


def test_functional_collectives_and_their_gradients(tmp_path: Path) -> None:
    on_ranks(2, migrated(FUNCTIONAL, tmp_path), tmp_path / "here")
    compare_functional(tmp_path / "here")


@pytest.mark.parametrize(
    "cases", thorough_but([["bfloat16"]], [["bfloat16"], [*SHARDED_CASES]]), ids=len
)
def test_sharded_models_end_as_torchs(cases: list[str], tmp_path: Path) -> None:
    there, here, original = tmp_path / "gloo.pt", tmp_path / "here.pt", tmp_path / "original.py"
    original.write_text(sharded_by_gloo())
    execute(original, there, *cases, MASTER_ADDR="localhost")
    on_ranks(2, migrated(SHARDED, tmp_path), here, *cases, JAX_ENABLE_X64="1")
    compare_sharded(here, there, cases)


GROUPS = """
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.multiprocessing as mp


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    device = torch.device("cuda", rank)
    own = torch.arange(4.0, device=device) + 10 * rank
    seen = {}

    def note(name, value):
        seen[name] = [v.tolist() for v in value] if isinstance(value, list) else value.tolist()

    pair = dist.new_group([0, 2])
    if rank != 1:
        seen["ranks"] = dist.get_process_group_ranks(pair)
        value = own.clone()
        dist.all_reduce(value, group=pair)
        note("sum of a pair", value)
        value = own.clone()
        dist.broadcast(value, src=2, group=pair)
        note("broadcast in a pair", value)
        objects = [None, None]
        dist.all_gather_object(objects, rank, group=pair)
        seen["objects of a pair"] = objects, dist.get_world_size(pair), dist.get_rank(pair)
    value = torch.zeros_like(own)
    if rank == 0:
        dist.send(own, dst=1)
        value = own
    elif rank == 1:
        dist.recv(value, src=0)
    note("sent", value)
    value = torch.zeros_like(own)
    work = [dist.isend(own, (rank + 1) % ranks), dist.irecv(value, (rank - 1) % ranks)]
    for each in work:
        each.wait()
    note("around", value)
    value = torch.zeros_like(own)
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, own + 1, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, value, (rank - 1) % ranks),
    ])
    for work in works:
        work.wait()
    note("around at once", value)
    leaf = own.clone().requires_grad_()
    total = torch.distributed.nn.functional.all_reduce(leaf * (rank + 1))
    (total.square().sum() * (rank + 1)).backward()
    note("gradient of a sum", leaf.grad)
    leaf = own.clone().requires_grad_()
    rows = torch.distributed.nn.functional.all_gather(leaf)
    sum(row.square().sum() * (i + 1 + rank) for i, row in enumerate(rows)).backward()
    note("gradient of what is gathered", leaf.grad)
    work = dist.all_reduce(own, async_op=True)
    work.wait()
    note("later", own)
    bits = torch.tensor([-0.0, float("nan"), float("inf"), 1e-30], device=device) * (rank == 0)
    dist.broadcast(bits, src=0)
    seen["bits"] = repr(bits.tolist())
    objects = [f"for {i}" for i in range(ranks)] if rank == 0 else None
    mine = [None]
    dist.scatter_object_list(mine, objects, src=0)
    seen["mine"] = mine
    dist.barrier()
    torch.save(seen, f"{path}.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(3, sys.argv[1]), nprocs=3)
"""


def test_groups_of_some_ranks_and_exchanges_between_two(tmp_path: Path) -> None:
    there, here, original = tmp_path / "gloo", tmp_path / "jax", tmp_path / "original.py"
    original.write_text(GROUPS.replace('"nccl"', '"gloo"').replace('"cuda", rank', '"cpu"'))
    execute(original, there, MASTER_ADDR="localhost")
    on_ranks(3, migrated(GROUPS, tmp_path), here)
    for rank in range(3):
        assert torch.load(f"{here}.{rank}") == torch.load(f"{there}.{rank}")


def agree(program: str, on_gloo: str, tolerance: float, folder: Path) -> None:
    """A program for GPUs, and the same for gloo, end with the same state on two ranks."""
    there, here, original = folder / "gloo.pt", folder / "jax.pt", folder / "original.py"
    original.write_text(on_gloo)
    execute(original, there, MASTER_ADDR="localhost")
    on_ranks(2, migrated(program, folder), here)
    expected, found = torch.load(there), torch.load(here)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= tolerance, name


def test_accumulation_unused_parameters_and_other_starts(tmp_path: Path) -> None:
    agree(ACCUMULATION, accumulation_by_gloo(), 1e-5, tmp_path)


@pytest.mark.thorough
def test_checkpoints_of_all_ranks(tmp_path: Path) -> None:
    program = (PROGRAMS / "rank_checkpoints.py").read_text()
    agree(program, program.replace('"nccl"', '"gloo"').replace(".to(rank)", "")
          .replace(", device_ids=[rank]", ""), 1e-5, tmp_path)  # fmt: skip


def test_backward_in_parts_and_a_pass_of_one_rank(tmp_path: Path) -> None:
    agree(TWO_PARTS, two_parts_by_gloo(), 1e-6, tmp_path)


@pytest.mark.thorough
def test_gradients_are_exchanged_in_16_bits(tmp_path: Path) -> None:
    agree(IN_16_BITS, two_parts_by_gloo(IN_16_BITS), 1e-6, tmp_path)


def test_a_parameter_without_a_gradient_is_named(tmp_path: Path) -> None:
    text = ACCUMULATION.replace(", find_unused_parameters=True", "")
    missing = r"other.weight, other.bias, never.weight, never.bias: no gradient since the last"
    with pytest.raises(AssertionError, match=missing):
        on_ranks(2, migrated(text, tmp_path), tmp_path / "x.pt")


TORCHRUN = """
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

case, rank = sys.argv[1], int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
early = torch.ones(2).cuda()  # before the group is made
dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(2, 1).cuda(), device_ids=[rank])
assert isinstance(model, torch.nn.parallel.DistributedDataParallel)
assert list(model.state_dict()) == ["module.weight", "module.bias"]
dist.all_reduce(early)
if rank == 1:
    if case == "fail":
        raise RuntimeError("a fault of one rank")
    if case == "end":
        sys.exit()
    if case == "other":
        early = early.reshape(1, 2)
dist.all_reduce(early)
said = f"rank {rank} of {dist.get_world_size()} {early.tolist()} {torch.cuda.device_count()}\\n"
os.write(1, said.encode())  # at once, since the ranks share the output
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("go", []),
        ("fail", ["RuntimeError: a fault of one rank"]),
        ("end", ["rank 0 waits for all_reduce (sum) (2,) of float32, and rank 1 has ended"]),
        (
            "other",
            [
                "rank 0 comes to all_reduce (sum) (2,) of float32, where rank 1 comes to "
                "all_reduce (sum) (1, 2) of float32"
            ],
        ),
    ],
)
def test_a_script_for_torchrun(case: str, said: list[str], tmp_path: Path) -> None:
    """A rank that fails ends all, and ranks that do other things are named."""
    done = torchrun(migrated(TORCHRUN, tmp_path), case)
    if case == "go":
        assert done.returncode == 0, done.stderr
        for rank in range(2):
            assert f"rank {rank} of 2 [4.0, 4.0] 2" in done.stdout
        return
    assert done.returncode != 0
    for message in said:
        assert message in done.stderr


EARLY = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank, early):
    if early == "rank":
        torch.ones(2).cuda()
    dist.init_process_group("nccl", rank=rank, world_size=2)


if __name__ == "__main__":
    torch.manual_seed(0)  # leaves the device alone
    torch.cuda.device_count()
    early = EARLY
    if early == "parent":
        torch.ones(2).cuda()
    mp.spawn(main, args=(early,), nprocs=2)
"""


@pytest.mark.parametrize(
    ("early", "said"),
    [
        ("rank", "the device was used before init_process_group"),
        ("parent", "the process that starts the ranks has used the device"),
    ],
)
def test_a_device_that_is_used_too_early_is_said(early: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=said):
        on_ranks(2, migrated(EARLY.replace("EARLY", repr(early)), tmp_path))


def test_one_rank_alone(tmp_path: Path) -> None:
    variables: dict[str, Any] = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    script = migrated(TORCHRUN, tmp_path)
    assert "rank 0 of 1 [1.0, 1.0] 1" in on_ranks(1, script, "go", **variables)


@pytest.mark.parametrize("name", tpu_topologies.ASKED)
def test_a_process_of_a_tpu_host_takes_a_chip(name: str) -> None:
    """As torch_xla has it; on a TPU this has not run."""
    from tpu_runtime.topology import take_chip

    assert tpu_topologies.found(take_chip, name) == tpu_topologies.TOLD[name]
