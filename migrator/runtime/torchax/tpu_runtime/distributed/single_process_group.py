"""`torch.distributed` for one process that drives all devices: a world of one.

The data that ranks would exchange is here already: sums and means over the whole batch are those
over all ranks. So each collective leaves a tensor as it is, on the device and on the CPU.

    torch.distributed.init_process_group("jax", init_method="jax://")

With `jax://alone`, a program that supports any number of ranks has one, whatever the devices.
"""

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch
import torch.distributed as dist
from torchax.tensor import Environment

from ..device import DEVICE_TYPE
from .process_group_base import NamedGroup, Tensors, check_ranks, completed_work

# The program may set the variable itself later.
_STARTED = int(os.environ.get("WORLD_SIZE") or 1)

_is_used = False


class WorldOfOne(NamedGroup):
    """The process group of torch's back end ``jax``."""

    def allreduce(self, tensors: Tensors, opts: object = None) -> Any:
        return completed_work(tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Tensors, opts: Any = None) -> Any:
        _check_root(opts)
        return completed_work(tensors)

    broadcast = reduce  # type: ignore[assignment]

    def barrier(self, opts: object = None) -> Any:
        return completed_work([])

    def allgather(self, results: list[Tensors], tensors: Tensors, opts: object = None) -> Any:
        for gathered, tensor in zip(results, tensors, strict=True):
            if len(gathered) != 1:
                raise ValueError(
                    f"a list for {len(gathered)} ranks: here one process has what all ranks have, "
                    "so the list holds one tensor"
                )
            gathered[0].copy_(tensor)
        return completed_work(results)

    def gather(self, results: list[Tensors], tensors: Tensors, opts: Any = None) -> Any:
        _check_root(opts)
        return self.allgather(results, tensors)

    def scatter(self, results: Tensors, tensors: list[Tensors], opts: Any = None) -> Any:
        _check_root(opts)
        for result, (tensor,) in zip(results, tensors, strict=True):
            result.copy_(tensor)
        return completed_work(results)

    def reduce_scatter(self, results: Tensors, tensors: Any, opts: object = None) -> Any:
        return self.scatter(results, tensors)

    def _allgather_base(self, result: torch.Tensor, tensor: torch.Tensor, _: object = None) -> Any:
        result.copy_(tensor.reshape(result.shape))
        return completed_work([result])

    _reduce_scatter_base = _allgather_base  # type: ignore[assignment]

    def alltoall_base(self, result: torch.Tensor, tensor: torch.Tensor, *sizes: object) -> Any:
        return self._allgather_base(result, tensor)


def _check_root(opts: Any) -> None:
    root = getattr(opts, "rootRank", 0)
    if root:
        raise ValueError(f"there is no rank {root}: one process has what all ranks have")


def is_used() -> bool:
    """Whether the program has chosen this mode."""
    return _is_used


def _rendezvous(url: str, timeout: object = None, **options: object) -> Iterator[Any]:
    """The rendezvous of a single process.

    Raises RuntimeError if a launcher has started several processes, and ValueError for a
    ``world_size`` other than the number of devices, or 1 if alone: the program expects other sizes.
    """
    global _is_used
    if _STARTED > 1:
        raise RuntimeError(
            f"{_STARTED} processes were started: start the program once, without torchrun; one "
            "process drives all devices"
        )
    asked = urlparse(url)
    for size in map(int, parse_qs(asked.query).get("world_size", ())):
        if asked.netloc != "alone":
            check_ranks(size)
        elif size not in (-1, 1):
            raise ValueError(
                f"the program is set up for {size} ranks: tell it that it has one, which uses all "
                "devices"
            )
    _is_used = True
    yield dist.HashStore(), 0, 1


def install(env: Environment) -> None:
    """Register the address with torch."""
    dist.register_rendezvous_handler(DEVICE_TYPE, _rendezvous)
