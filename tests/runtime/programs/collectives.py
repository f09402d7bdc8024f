"""What two ranks exchange; each writes down what it has seen."""

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
    seen["objects"] = objects_of(rank, ranks)
    dist.barrier()
    torch.save(seen, f"{path}.{rank}")
    dist.destroy_process_group()


def objects_of(rank, ranks):
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank + 1)})
    values = [rank, "from", rank]
    dist.broadcast_object_list(values, src=1)
    return [objects, values, dist.get_rank(), dist.get_world_size()]


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
