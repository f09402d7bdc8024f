"""fully_shard: parts in parts, accumulation without exchanges, frozen and unused parameters."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)))
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 2)
        self.never = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.norm(self.blocks[1:](self.blocks[0](x))))


def sharded(rank, seed=0):
    torch.manual_seed(seed)
    model = Net().to(rank)
    model.blocks[0].requires_grad_(False)
    double = MixedPrecisionPolicy(torch.float64, torch.float32, output_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=True, mp_policy=double)
    return fully_shard(model)


def is_refused(rank, x):
    """Ranks that begin with different parameters."""
    try:
        sharded(rank, seed=rank)(x)
    except ValueError:
        return True
    return False


def compiled(rank):
    """The same, where nothing is in the way of a step that is one program."""
    torch.manual_seed(0)
    model = fully_shard(nn.Linear(6, 2).to(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for seed in range(2):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(2 * seed + rank)).to(rank)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    model = sharded(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(3):
            model.set_requires_gradient_sync(part > 0)
            model.set_is_last_backward(part == 2)
            seed = 10 * step + 2 * part + rank
            x = torch.randn(5, 6, generator=torch.Generator().manual_seed(seed)).to(rank)
            loss = model(x).square().mean() / 3
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        print(rank, step, loss.item())
    assert isinstance(model, FSDPModule) and isinstance(model, Net)
    assert not isinstance(model.blocks[1:], FSDPModule)
    assert model.never.weight.grad is None
    assert model.blocks[1][0].weight.dtype == torch.float64  # not on gloo
    assert all(p.dtype == torch.float32 for p in model.parameters())
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    state |= compiled(rank)
    if rank == 0:
        torch.save(state, path)
    assert is_refused(rank, x)  # not on gloo
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
