"""Programs for several devices, as they are by gloo and as they become, and how far they agree."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterable
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
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, register_ddp_comm_hook
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
    register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, model)
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


def two_parts_by_gloo() -> str:
    """The same on the CPU."""
    text = TWO_PARTS.replace('"nccl"', '"gloo"').replace("device = rank", 'device = "cpu"')
    text = text.replace(", device_ids=[device]", "")
    return text.replace("    print(torch.cuda", "    0 and print(torch.cuda")


SHARDED = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffload, FullStateDictConfig, MixedPrecision, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.never = nn.Linear(width, width)
        self.register_buffer("shift", torch.full((width,), 0.123456))

    def forward(self, x):
        return x + self.scale * self.second(self.first(x).tanh()) + self.shift.to(x.dtype)


class Net(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([Block(8), checkpoint_wrapper(Block(8))])
        self.norm = nn.BatchNorm1d(8) if norm else nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).float()


def train(case, rank):
    torch.manual_seed(rank)
    net = Net("norm" in case)
    net.blocks[0].second.requires_grad_(False)
    mixed = None
    if "bfloat16" in case:
        mixed = MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16)
    elif "float64" in case:
        mixed = MixedPrecision(torch.float64, torch.float64)
    options = dict(mixed_precision=mixed, sync_module_states=True, use_orig_params=True)
    if "by hand" in case:
        net.blocks[0] = FSDP(net.blocks[0], device_id=rank, **options)
        model = FSDP(net, device_id=rank, **options)
    else:
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=rank, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
    norms = []
    for step in range(3):
        optimizer.zero_grad()
        batches = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(10 * step + rank))
        if "no_sync" in case:
            with model.no_sync():
                model(batches[2].to(rank)).square().mean().backward()
        for batch in batches[:2]:
            model(batch.to(rank)).square().mean().backward()
        norms.append(model.clip_grad_norm_(0.5).item())
        optimizer.step()
    assert isinstance(model, FSDP) and len(FSDP.fsdp_modules(model)) > 1
    with FSDP.summon_full_params(model):
        names = [name for name, _ in model.named_parameters()]
    config = FullStateDictConfig()  # on the CPU and of rank 0 alone, torch's fails without a GPU
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = {name: value.cpu().clone() for name, value in model.state_dict().items()}
        model.load_state_dict(state)
    return {"state": state, "losses": [0.0], "norms": norms, "names": names}


def is_refused(error, rank, **options):
    torch.manual_seed(rank)
    try:
        FSDP(torch.nn.Linear(3, 4).to(rank), **options)
    except error:
        return True
    return False


def main(rank, ranks, path, cases):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    results = {case: train(case, rank) for case in cases}
    results["other parameters"] = is_refused(ValueError, rank)
    offload = CPUOffload(offload_params=True)
    results["offload"] = is_refused(NotImplementedError, rank, cpu_offload=offload)
    if rank == 0:
        torch.save(results, path)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1], sys.argv[2:]), nprocs=2)
"""

# A step is about 0.02 long, of which bfloat16 keeps three digits.
SHARDED_CASES = {"by hand, no_sync": 1e-6, "float64, norm": 1e-6, "bfloat16": 1e-3}


def sharded_by_gloo() -> str:
    """The same on the CPU, where ranks have to begin alike."""
    text = SHARDED.replace('"nccl"', '"gloo"').replace(".to(rank)", "")
    text = text.replace("device_id=rank", 'device_id=torch.device("cpu")')
    text = text.replace("sync_module_states=True, ", "")
    text = text.replace("manual_seed(rank)", "manual_seed(0)", 1)
    return text.replace("FSDP(torch.nn.Linear", "0 and FSDP(torch.nn.Linear")


def compare_sharded(here: Path, there: Path, cases: Iterable[str] = SHARDED_CASES) -> None:
    """What FullyShardedDataParallel has become ends as torch's own, or refuses to begin."""
    expected, found = torch.load(there), torch.load(here)
    for case in cases:
        tolerance = SHARDED_CASES[case]
        assert found[case]["names"] == expected[case]["names"]
        norms = zip(found[case].pop("norms"), expected[case].pop("norms"), strict=True)
        assert max(abs(x / y - 1) for x, y in norms) <= 10 * tolerance, case
        assert difference(found[case], expected[case]) <= tolerance, case
    assert found["other parameters"] and found["offload"]


FUNCTIONAL = """
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import _functional_collectives as functional
from torch.distributed._functional_collectives import all_gather_tensor_autograd


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    device = torch.device("cuda", rank)
    world = dist.group.WORLD
    own = torch.arange(8.0, device=device).reshape(4, 2) + 10 * rank
    weights = torch.arange(16.0, device=device).reshape(8, 2) * (rank + 1)
    seen = {}

    def note(name, value):
        seen[name] = value.detach().cpu()

    def differentiated(name, exchange, weights):
        x = own.clone().requires_grad_()
        value = exchange(x)
        (value * weights).sum().backward()
        note(name, value)
        note(f"gradient of {name}", x.grad)

    differentiated("all_gather", lambda x: all_gather_tensor_autograd(x, 0, world), weights)
    differentiated(
        "all_gather along 1", lambda x: functional.all_gather_tensor_autograd(x, 1, group=world),
        weights.reshape(4, 4),
    )
    differentiated(
        "reduce_scatter", lambda x: functional.reduce_scatter_tensor_autograd(x, "sum", 0, world),
        weights[:2],
    )
    differentiated(
        "all_to_all",
        lambda x: functional.all_to_all_single_autograd(x, [2, 2], [2, 2], world), weights[:4],
    )
    note("all_gather without a gradient", functional.all_gather_tensor(own, 0, world))
    note("all_reduce", functional.all_reduce(own, "sum", world))
    note("avg", functional.all_reduce(own, "avg", world))
    note("reduce_scatter along 1", functional.reduce_scatter_tensor(own, "avg", 1, world))
    note("broadcast", functional.broadcast(own, 1, world))
    note("waited for", functional.wait_tensor(functional.all_reduce(own, "max", world) + 1))
    note("own", own)
    torch.save(seen, f"{path}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
"""


def compare_functional(path: Path) -> None:
    """What two ranks have seen of FUNCTIONAL, and what it should be."""
    owns = [torch.arange(8.0).reshape(4, 2) + 10 * rank for rank in range(2)]
    weights = [torch.arange(16.0).reshape(8, 2) * (rank + 1) for rank in range(2)]
    total = owns[0] + owns[1]
    along = sum(w.reshape(4, 4) for w in weights)
    for rank, own in enumerate(owns):
        part, place = slice(2 * rank, 2 * rank + 2), slice(4 * rank, 4 * rank + 4)
        expected = {
            "all_gather": torch.cat(owns),
            "gradient of all_gather": (weights[0] + weights[1])[place],
            "all_gather along 1": torch.cat(owns, 1),
            "gradient of all_gather along 1": along[:, part],
            "reduce_scatter": total[part],
            "gradient of reduce_scatter": torch.cat([w[:2] for w in weights]),
            "all_to_all": torch.cat([o[part] for o in owns]),
            "gradient of all_to_all": torch.cat([w[part] for w in weights]),
            "all_gather without a gradient": torch.cat(owns),
            "all_reduce": total,
            "avg": total / 2,
            "reduce_scatter along 1": total[:, rank : rank + 1] / 2,
            "broadcast": owns[1],
            "waited for": owns[1] + 1,
            "own": own,
        }
        found = torch.load(f"{path}.{rank}")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(found[name], value), name
