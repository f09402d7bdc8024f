"""Models that are sharded, and functional collectives: programs, and what they give on gloo."""

from collections.abc import Iterable
from pathlib import Path

import torch

from tests.runtime.several_devices import difference

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
    sgd = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
    optimizer = torch.optim.SGD(model.parameters(), **sgd)
    norms = []
    for step in range(3):
        if step == 2:  # another one goes on with what the first has kept
            kept = FSDP.optim_state_dict(model, optimizer)
            assert "blocks.1.first.weight" in kept["state"]
            optimizer = torch.optim.SGD(model.parameters(), **sgd)
            optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, kept))
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


def sharded_alike() -> str:
    """The same for `on_gloo`, where ranks have to begin alike."""
    text = SHARDED.replace("device_id=rank", 'device_id=torch.device("cpu")')
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
