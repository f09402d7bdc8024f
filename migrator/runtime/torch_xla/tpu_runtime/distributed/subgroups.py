"""Some of the ranks, a group of them or two: their hosts exchange the values, with gloo.

An XLA program with an exchange has to run on all devices. The other ranks don't
take part in these exchanges, so they can't be such programs.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch_xla.distributed import xla_backend

from ..device import DEVICE_TYPE
from .host_receive import Received, Tensors


def _by_hosts(name: str) -> Callable[..., Any]:
    """gloo's exchange of that name, through the CPU."""

    @torch.no_grad()
    def exchange(self: "SomeRanks", *args: Any) -> Any:
        places: list[tuple[Tensor, Tensor]] = []

        def on_host(tensor: Tensor) -> Tensor:
            host = tensor.detach().cpu()
            places.append((tensor, host))
            return host

        options: Any = args[-1] if args and hasattr(args[-1], "reduceOp") else None
        means = options is not None and options.reduceOp == dist.ReduceOp.AVG
        if means:  # gloo has no mean
            options.reduceOp = dist.ReduceOp.SUM
        given = tree_map_only(Tensor, on_host, args)
        work = getattr(self._hosts, name)(*(value for value in given if value is not None))
        work.wait()
        for tensor, host in places:
            if means:
                _divide(host, self.size())
            if host is not tensor:
                tensor.copy_(host)
        return xla_backend._ret_work(args[0] if args else [])

    return exchange


def _divide(total: Tensor, count: int) -> None:
    """Divide like NCCL, including integers."""
    exact = not (total.is_floating_point() or total.is_complex())
    total.div_(count, rounding_mode="trunc" if exact else None)


class ByHosts(xla_backend.ProcessGroupXla):
    """Ranks whose hosts are connected: two of them exchange without the others."""

    # Of tensors that it exchanges.
    _device_types = (torch.device("cpu"), torch.device(DEVICE_TYPE))  # type: ignore[assignment]

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(store, rank, size, timeout)  # type: ignore[no-untyped-call]
        self._hosts: Any = dist.ProcessGroupGloo(
            dist.PrefixStore("hosts", store), rank, size, timeout
        )

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Any:
        return self._hosts.send([tensor.detach().cpu() for tensor in tensors], to, tag)

    def recv(self, tensors: Tensors, of: int, tag: int = 0) -> Any:
        return Received(tensors, lambda places: self._hosts.recv(places, of, tag))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        return Received(tensors, lambda places: self._hosts.recv_anysource(places, tag))


class SomeRanks(ByHosts):
    """Some of the ranks; tensors are on the device or on the CPU."""

    allreduce, allreduce_coalesced = _by_hosts("allreduce"), _by_hosts("allreduce_coalesced")
    reduce, broadcast = _by_hosts("reduce"), _by_hosts("broadcast")
    allgather, _allgather_base = _by_hosts("allgather"), _by_hosts("_allgather_base")
    gather, scatter = _by_hosts("gather"), _by_hosts("scatter")
    reduce_scatter = _by_hosts("reduce_scatter")
    _reduce_scatter_base = _by_hosts("_reduce_scatter_base")
    alltoall, alltoall_base = _by_hosts("alltoall"), _by_hosts("alltoall_base")

    def barrier(self, opts: Any = None) -> Any:
        self._hosts.barrier(dist.BarrierOptions()).wait()
        return xla_backend._ret_work([])

    def monitored_barrier(self, *_: Any) -> Any:
        return self.barrier()
