"""Sequence parallelism: each GPU has a part of the image tokens, and all keys and values."""

import os

import torch
import torch.distributed as dist


def start() -> int:
    """Join the other GPUs (torchrun); returns this one's index."""
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    return dist.get_rank()


def is_used() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def part(x: torch.Tensor, dim: int) -> torch.Tensor:
    """This GPU's part of ``x`` along ``dim``."""
    if not is_used():
        return x
    return x.chunk(dist.get_world_size(), dim=dim)[dist.get_rank()].contiguous()


def whole(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The parts of all GPUs, joined along ``dim``."""
    if not is_used():
        return x
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts, dim=dim)
