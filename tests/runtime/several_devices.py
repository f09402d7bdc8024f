"""Programs for several devices, as they are by gloo and as they become, and how far they agree."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

PROGRAMS = Path(__file__).parent / "programs"


def execute(script: Path, *arguments: object, **variables: str) -> str:
    """What a program prints, errors included."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_PORT": str(port), **variables}
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest one of any parameter or loss."""
    assert found["state"].keys() == expected["state"].keys()
    pairs = [(found["state"][name], value) for name, value in expected["state"].items()]
    pairs.append((torch.tensor(found["losses"]), torch.tensor(expected["losses"])))
    assert all(a.shape == b.shape for a, b in pairs)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


# "adam" computes in float64: float32 rounding decides the sign of its first steps where a gradient
# is about 0, and BatchNorm over four samples makes more of a rounding at each step.
TOLERANCES = {
    "sgd": 1e-6, "clip": 1e-6, "uneven": 1e-6, "adam": 1e-6, "adam_norm": 1e-9,
    "adam_norm_sync": 1e-9,
}  # fmt: skip


def compare(here: Path, there: Path, cases: list[str]) -> None:
    """Parameters, losses and counts of two runs of ddp_training.py."""
    expected, found = torch.load(there), torch.load(here)
    for case in cases:
        assert difference(found[case], expected[case]) <= TOLERANCES[case], case
        for count in ("right", "seen"):
            assert found[case][count] == expected[case][count]


def compare_collectives(here: Path, there: Path) -> None:
    """What two ranks have seen of COLLECTIVES, and what gloo, which has no mean, gave them."""
    for rank in range(2):
        expected, found = torch.load(f"{there}.{rank}"), torch.load(f"{here}.{rank}")
        assert found.pop("AVG") == [x / 2 for x in expected["SUM"]]
        assert found.pop("mean of integers") == [1, 4]
        assert expected.pop("mean of integers") == [3, 8]
        assert found == expected


COLLECTIVES = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(index, ranks, path):
    # a rank need not have the number of the process
    rank = ranks - 1 - index
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    device = torch.device("cuda", index)
    own = torch.arange(4.0, device=device) + 10 * rank
    seen = {}

    def note(name, value):
        seen[name] = [v.tolist() for v in value] if isinstance(value, list) else value.tolist()

    for name in ("SUM", "AVG", "MIN", "MAX", "PRODUCT"):
        value = own.clone()
        dist.all_reduce(value, op=getattr(dist.ReduceOp, name))
        note(name, value)
    value = own.clone()
    dist.reduce(value, dst=1)
    if rank == 1:  # what the others have is nobody's concern
        note("reduce", value)
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    note("all_gather", parts)
    whole = torch.empty(ranks * 4, device=device)
    dist.all_gather_into_tensor(whole, own)
    note("all_gather_into_tensor", whole)
    value = own / (1.0 if rank == 1 else 0.0)  # infinite and NaN elsewhere
    dist.broadcast(value, src=1)
    note("broadcast", value)
    flags = torch.tensor([True, rank == 0], device=device)
    dist.broadcast(flags, src=0)
    note("truth values", flags)
    parts = [torch.empty_like(own) for _ in range(ranks)] if rank == 0 else None
    dist.gather(own, parts, dst=0)
    note("gather", parts or [])
    parts = [own * (i + 1) for i in range(ranks)] if rank == 1 else None
    value = torch.empty_like(own)
    dist.scatter(value, parts, src=1)
    note("scatter", value)
    value = torch.empty(2, device=device)
    dist.reduce_scatter_tensor(value, own[: 2 * ranks])
    note("reduce_scatter", value)
    value = torch.empty_like(own)
    dist.all_to_all_single(value, own)
    note("all_to_all", value)
    matrix = torch.zeros(2, 4, device=device)
    dist.all_reduce(matrix[1].add_(own))  # a view
    note("view", matrix)
    if rank == 0:
        print("rank 0 looks at", own.sum().item())  # what others do not
    here = torch.tensor([rank, 2 * rank])  # on the CPU
    dist.all_reduce(here)
    note("host", here)
    count = torch.tensor([3 * rank, 4], device=device)
    dist.all_reduce(count, op=dist.ReduceOp.AVG)
    seen["mean of integers"] = count.tolist()
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank + 1)})
    values = [rank, "from", rank]
    dist.broadcast_object_list(values, src=1)
    seen["objects"] = [objects, values, dist.get_rank(), dist.get_world_size()]
    dist.barrier()
    torch.save(seen, f"{path}.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
"""


def by_gloo(program: str) -> str:
    """The same on the CPU."""
    text = program.replace('"nccl"', '"gloo"').replace('"cuda", index', '"cpu"')
    # gloo has no mean, and this one no scattered sum
    text = (
        text.replace('"AVG", ', "")
        .replace("op=dist.ReduceOp.AVG", "")
        .replace(
            "dist.reduce_scatter_tensor(value, own[: 2 * ranks])",
            "all = own[: 2 * ranks].clone(); dist.all_reduce(all); value = all[2 * rank :][:2]",
        )
    )
    text = text.replace(
        "dist.all_to_all_single(value, own)",
        "parts = [torch.empty_like(own) for _ in range(ranks)]; dist.all_gather(parts, own); "
        "value = torch.cat([p[2 * rank :][:2] for p in parts])",
    )
    return text


ACCUMULATION = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.second = torch.nn.Linear(4, 2)
        self.other = torch.nn.Linear(4, 2)
        self.never = torch.nn.Linear(4, 2)

    def forward(self, x, other):
        hidden = self.norm(self.first(x)).tanh()
        return self.other(hidden) if other else self.second(hidden)


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    torch.manual_seed(rank)  # other parameters on each rank
    model = DDP(Net().to(rank), device_ids=[rank], find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for step in range(4):
        optimizer.zero_grad()
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))
        with model.no_sync():
            model(x, False).square().mean().backward()  # a batch on the CPU, as DDP allows
        loss = model(x.to(rank) + 1, rank == 1 and step > 1).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if rank == 0:
            print(step, loss.item())
    assert model.module.never.weight.grad is None
    model.eval()
    with torch.no_grad():
        for _ in range(3 if rank == 0 else 1):  # only the first pass exchanges buffers
            model(x.to(rank), False)
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    torch.load(path, map_location={"cuda:0": f"cuda:{rank}"})
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
"""


def accumulation_by_gloo() -> str:
    """The same on the CPU."""
    text = ACCUMULATION.replace('"nccl"', '"gloo"').replace(".to(rank)", "")
    return text.replace("device_ids=[rank], ", "")


TWO_PARTS = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = torch.nn.Linear(3, 1)
        self.critic = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.actor(x), self.critic(x)


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    torch.manual_seed(rank)
    device = rank
    model = DDP(Net().to(device), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))
        actor, critic = model(x.to(device))
        optimizer.zero_grad()
        actor.square().mean().backward()
        critic.square().mean().backward()
        optimizer.step()
        if rank == 0:  # a pass that is nobody else's
            sum(part.sum() for part in model.module(x.to(device))).backward()
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.destroy_process_group()


if __name__ == "__main__":
    print(torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).name)
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
"""


# The same, exchanged in 16 bits.
IN_16_BITS = TWO_PARTS.replace(
    "    optimizer = ",
    "    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
    "    model.register_comm_hook(None, default_hooks.fp16_compress_hook)\n"
    "    optimizer = ",
)


def two_parts_by_gloo(program: str = TWO_PARTS) -> str:
    """The same on the CPU."""
    text = program.replace('"nccl"', '"gloo"').replace("device = rank", 'device = "cpu"')
    text = text.replace(", device_ids=[device]", "")
    return text.replace("    print(torch.cuda", "    0 and print(torch.cuda")
