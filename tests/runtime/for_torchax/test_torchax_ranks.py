"""Ranks on torchax: how they start and end, and who is named when they differ."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime import tpu_topologies
from tests.runtime.several_devices import migrated, on_ranks


def torchrun(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc-per-node=2", script, *map(str, arguments)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


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
        pytest.param(
            "end",
            ["rank 0 waits for all_reduce (sum) (2,) of float32, and rank 1 has ended"],
            marks=pytest.mark.thorough,
        ),
        (
            "other",
            [
                "rank 0 does all_reduce (sum) (2,) of float32, but rank 1 does "
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
    """By the program: no part of the runtime uses it when it is set up."""
    script = migrated(EARLY.replace("EARLY", repr(early)), tmp_path)
    with pytest.raises(AssertionError, match=said):
        on_ranks(2, script)


def test_one_rank_alone(tmp_path: Path) -> None:
    variables: dict[str, Any] = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    script = migrated(TORCHRUN, tmp_path)
    assert "rank 0 of 1 [1.0, 1.0] 1" in on_ranks(1, script, "go", **variables)


@pytest.mark.parametrize("name", tpu_topologies.ASKED)
def test_a_process_of_a_tpu_host_takes_a_chip(name: str) -> None:
    """As torch_xla has it; on a TPU this has not run."""
    from tpu_runtime.distributed.topology import take_chip

    assert tpu_topologies.found(take_chip, name) == tpu_topologies.TOLD[name]
