"""`dist.reduce`, which tpu_dist lacks: all ranks compute the result, and the root keeps it."""

from typing import Any

import torch
import torch.distributed as dist

from ..device import is_loaded

if dist.is_available():
    _original = dist.reduce


def install() -> None:
    if is_loaded() and dist.is_available() and dist.reduce is not reduce:
        dist.reduce = dist.distributed_c10d.reduce = reduce


def reduce(
    tensor: torch.Tensor,
    dst: int | None = None,
    op: Any = None,  # the sum
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """As torch's own. A tensor on a TPU is reduced by the time that this returns."""
    if tensor.device.type != "tpu":
        return _original(tensor, dst, op or dist.ReduceOp.SUM, group, async_op, group_dst)
    return by_all_ranks(tensor, dst, op, group, async_op, group_dst)


def by_all_ranks(
    tensor: torch.Tensor,
    dst: int | None,
    op: Any,
    group: Any,
    async_op: bool,
    group_dst: int | None,
) -> Any:
    if (dst is None) is (group_dst is None):
        raise ValueError("reduce takes one of dst and group_dst")
    everyone: Any = group if group is not None else dist.group.WORLD
    rank = dist.get_rank(everyone)
    if rank < 0:
        return None  # not one of the group
    result = tensor.detach().clone()
    work = dist.all_reduce(result, op or dist.ReduceOp.SUM, group, async_op)
    if work is not None:
        work.wait()
    root = group_dst if dst is None else dist.get_group_rank(everyone, dst)
    if rank == root:
        with torch.no_grad():
            tensor.copy_(result)
    return work
