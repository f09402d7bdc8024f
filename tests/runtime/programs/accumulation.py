"""DDP without exchanges, with unused parameters and other starts; buffers come from rank 0."""

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
