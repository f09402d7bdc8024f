"""Ranks keep and load checkpoints by torch.distributed.checkpoint."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.nn.parallel import DistributedDataParallel as DDP


def made(rank, seed):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4, bias=False), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    )
    model = DDP(net.to(rank), device_ids=[rank])
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def steps(model, optimizer, rank, n):
    for step in range(n):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = model(x.to(rank)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    model, optimizer = made(rank, 0)
    steps(model, optimizer, rank, 2)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    of_optimizer = get_optimizer_state_dict(model, optimizer, options=options)
    if rank == 0:
        assert all(value.device.type == "cpu" for value in state.values())
        torch.save({"model": state, "optimizer": of_optimizer}, f"{path}.whole")
    of_model, own = get_state_dict(model, optimizer)
    parts = {"model": of_model, "optimizer": own}
    writer = dcp.FileSystemWriter(f"{path}.parts")
    dcp.save(parts, storage_writer=writer, planner=dcp.DefaultSavePlanner())

    again, second = made(rank, 1)
    dist.barrier()
    whole = torch.load(f"{path}.whole", map_location="cpu")
    set_model_state_dict(again, whole["model"], options=options)
    set_optimizer_state_dict(again, second, optim_state_dict=whole["optimizer"], options=options)
    steps(again, second, rank, 2)

    third, last = made(rank, 2)
    of_model, own = get_state_dict(third, last)
    parts = {"model": of_model, "optimizer": own}
    dcp.load(parts, storage_reader=dcp.FileSystemReader(f"{path}.parts"))
    set_state_dict(third, last, model_state_dict=of_model, optim_state_dict=own)
    steps(third, last, rank, 2)
    if rank == 0:
        assert torch.equal(again.module[0].weight.cpu(), third.module[0].weight.cpu())
        torch.save(again.state_dict(), path)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
