"""A GPU program for several devices, with the usual parts: it also runs on the CPU, by gloo.

For each case of the command line: ten or more steps; its parameters and losses go into a file.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=world_size)
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)


def build(case):
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(16)] if "norm" in case else []
    model = nn.Sequential(nn.Linear(12, 16, bias=not norm), *norm, nn.Tanh(), nn.Linear(16, 3))
    if "sync" in case and torch.cuda.is_available():
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return model


def average(value, world_size):
    total = value.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total / world_size


def train(case, rank, world_size, args):
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    dtype = torch.float64 if "adam" in case else torch.float32
    samples = args.samples - 5 if "uneven" in case else args.samples
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 12, generator=generator)
    dataset = TensorDataset(inputs, inputs[:, :3].argmax(1))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, pin_memory=True)
    model = DDP(build(case).to(device, dtype), device_ids=[rank] if device.type == "cuda" else None)
    if "adam" in case:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, right, seen = [], torch.zeros((), device=device), torch.zeros((), device=device)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(device, dtype, non_blocking=True), y.to(device, non_blocking=True)
            optimizer.zero_grad()
            output = model(x)
            loss = F.cross_entropy(output, y)
            loss.backward()
            if "clip" in case:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            losses.append(average(loss, world_size).item())
            right += (output.argmax(1) == y).sum()
            seen += y.numel()
    dist.all_reduce(right)
    dist.all_reduce(seen)
    if rank == 0:
        print(f"{case}: loss {losses[-1]:.4f}, right {right.item():.0f} of {seen.item():.0f}")
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return {"state": state, "losses": losses, "right": right.item(), "seen": seen.item()}


def main(rank, world_size, args):
    setup(rank, world_size)
    results = {case: train(case, rank, world_size, args) for case in args.cases}
    dist.barrier()
    if rank == 0:
        torch.save(results, args.output)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--output", required=True)
    parser.add_argument("--batch-size", type=int, default=4, help="of one rank")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--world-size", type=int, default=torch.cuda.device_count())
    args = parser.parse_args()
    mp.spawn(main, args=(args.world_size, args), nprocs=args.world_size)
