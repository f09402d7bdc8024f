"""Two backward passes of one pass forward, two models in one, a pass that one rank alone makes."""

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
    other = DDP(torch.nn.Linear(1, 2).to(device), device_ids=[device])
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    for step in range(3):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))
        actor, critic = model(x.to(device))
        optimizer.zero_grad()
        actor.square().mean().backward()
        other(critic).square().mean().backward()
        optimizer.step()
        if rank == 0:  # a pass that is nobody else's
            sum(part.sum() for part in model.module(x.to(device))).backward()
    if rank == 0:
        also = {f"other.{name}": value for name, value in other.state_dict().items()}
        torch.save(model.state_dict() | also, path)
    dist.destroy_process_group()


if __name__ == "__main__":
    print(torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).name)  # not on gloo
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
