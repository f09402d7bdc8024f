"""Groups of some of three ranks, and what goes from one rank to another."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.multiprocessing as mp


def main(rank, ranks, path):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    device = torch.device("cuda", rank)
    own = torch.arange(4.0, device=device) + 10 * rank
    seen = {}

    def note(name, value):
        seen[name] = value.tolist()

    pair, single = dist.new_group([0, 2]), dist.new_group([1])
    group = single if rank == 1 else pair
    seen["who"] = dist.get_rank(group), dist.get_world_size(group), dist.get_rank(pair)
    seen["ranks"] = dist.get_process_group_ranks(group)
    for name in ("SUM", "MAX", "PRODUCT"):
        value = own.clone()
        dist.all_reduce(value, op=getattr(dist.ReduceOp, name), group=group)
        note(name, value)
    count = torch.tensor([rank, 5], device=device)
    dist.all_reduce(count, op=dist.ReduceOp.AVG, group=group)
    note("mean", count)
    if rank != 1:
        value = own.clone()
        dist.broadcast(value, src=2, group=pair)
        note("broadcast", value)
        parts = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(parts, own, group=pair)
        note("all_gather", torch.stack(parts))
        whole = torch.empty(8, device=device)
        dist.all_gather_into_tensor(whole, own, group=pair)
        note("all_gather_into_tensor", whole)
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank}, group=pair)
        seen["objects"] = objects
        dist.barrier(group=pair)
    norm = torch.nn.SyncBatchNorm(4, process_group=group).to(device)  # not on gloo
    norm(torch.stack([own, own * own, own + 1]))  # not on gloo
    seen["variance"] = norm.running_var.cpu()  # not on gloo
    sent(rank, ranks, own, pair, seen, note)
    gradients(rank, own, note)
    everybody = dist.new_group()
    value = own.clone()
    dist.all_reduce(value, group=everybody)
    note("everybody", value)
    hosts = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else None
    value = torch.full((2,), rank + 1.0)
    dist.all_reduce(value, group=hosts)
    note("hosts", value)
    work = dist.all_reduce(own, async_op=True)
    work.wait()
    note("later", own)
    bits = torch.tensor([-0.0, float("nan"), float("inf"), 1e-30], device=device) * (rank == 0)
    dist.broadcast(bits, src=0)
    seen["bits"] = repr(bits.tolist())
    objects, mine = [f"for {i}" for i in range(ranks)] if rank == 0 else None, [None]
    dist.scatter_object_list(mine, objects, src=0)
    seen["mine"] = mine
    torch.save(seen, f"{path}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


def sent(rank, ranks, own, pair, seen, note):
    value = torch.zeros_like(own)
    if rank == 0:
        dist.send(own, dst=1)
    elif rank == 1:
        dist.recv(value)
    note("sent", value)
    value, other = torch.zeros_like(own), torch.zeros_like(own)
    works = [dist.irecv(value, (rank - 1) % ranks), dist.isend(own * 2, (rank + 1) % ranks)]
    for work in works:
        work.wait()
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.irecv, other, (rank + 1) % ranks),
        dist.P2POp(dist.isend, value, (rank - 1) % ranks),
    ])  # fmt: skip
    for work in works:
        work.wait()
    note("around", value)
    note("and back", other)
    objects = [None]
    if rank == 2:
        dist.send_object_list([{"from": rank}], dst=0, group=pair)
    elif rank == 0:
        dist.recv_object_list(objects, src=2, group=pair)
    seen["objects sent"] = objects


def gradients(rank, own, note):
    leaf = own.clone().requires_grad_()
    total = torch.distributed.nn.functional.all_reduce(leaf * (rank + 1))
    (total.square().sum() * (rank + 1)).backward()
    note("gradient of a sum", leaf.grad)
    leaf = own.clone().requires_grad_()
    rows = torch.distributed.nn.functional.all_gather(leaf)
    sum(row.square().sum() * (i + 1 + rank) for i, row in enumerate(rows)).backward()
    note("gradient of what is gathered", leaf.grad)


if __name__ == "__main__":
    mp.spawn(main, args=(3, sys.argv[1]), nprocs=3)
