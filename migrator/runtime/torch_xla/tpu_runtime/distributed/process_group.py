"""`torch.distributed` for ranks with one XLA device each.

    torch.distributed.init_process_group("xla", init_method="xla://")

torch_xla 2.9: `barrier` doesn't wait, `ReduceOp.AVG` raises, objects can't be gathered, and the
exchanges are parts of the programs around them (collectives.py). Its ranks are the ordinals of
devices, in no guaranteed order, while torchrun and a program's own arithmetic differ from them:
here a rank is the program's number, and gathered values come in that order.
"""

import functools
import importlib
import inspect
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.distributed import xla_backend

from ..device import get_device_name, say
from ..random_numbers.seeds import wake
from . import collectives
from .subgroups import ByHosts, SomeRanks

Tensors = list[torch.Tensor]

_OPERATIONS = {
    dist.ReduceOp.SUM: xm.REDUCE_SUM, dist.ReduceOp.AVG: xm.REDUCE_SUM,
    dist.ReduceOp.PRODUCT: xm.REDUCE_MUL, dist.ReduceOp.MIN: xm.REDUCE_MIN,
    dist.ReduceOp.MAX: xm.REDUCE_MAX, dist.ReduceOp.BAND: xm.REDUCE_AND,
    dist.ReduceOp.BOR: xm.REDUCE_OR,
}  # fmt: skip


class ProcessGroup(ByHosts):
    """All ranks. Tensors are on the device."""

    def __new__(cls, store: object, rank: int, size: int, timeout: Any) -> Any:
        if size != xr.world_size():
            return SomeRanks(store, rank, size, timeout)
        return super().__new__(cls, store, rank, size, timeout)  # type: ignore[call-arg]

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(store, rank, size, timeout)
        ranks = collectives.gather_objects(rank) if size > 1 else [0]
        if sorted(ranks) != list(range(size)):
            raise ValueError(f"each rank has to have a number of its own, these are {ranks}")
        self._ordinals = [ranks.index(r) for r in range(size)]  # of each rank

    def _gathered(self, tensor: torch.Tensor) -> Tensors:
        """The values of all ranks, by rank."""
        parts = collectives.all_gather(tensor)
        return [parts[ordinal] for ordinal in self._ordinals]

    def gather_objects(self, value: object) -> list[Any]:
        """The values of all ranks, by rank."""
        found = collectives.gather_objects(value)
        return [found[ordinal] for ordinal in self._ordinals]

    def _reduced(self, tensors: Tensors, options: Any) -> None:
        # torch's object for an operation equals its name, but has another hash.
        operation = next((o for kind, o in _OPERATIONS.items() if options.reduceOp == kind), None)
        if operation is None:
            raise NotImplementedError(f"{options.reduceOp} of torch.distributed")
        mean = options.reduceOp == dist.ReduceOp.AVG
        exact = not all(tensor.is_floating_point() for tensor in tensors)
        collectives.all_reduce(tensors, operation, 1 / self.size() if mean and not exact else 1.0)
        if mean and exact:  # as NCCL divides integers
            for tensor in tensors:
                tensor.div_(self.size(), rounding_mode="trunc")

    def allreduce(self, tensors: Tensors, options: Any) -> Any:
        self._reduced(tensors, options)
        return _completed_work(tensors)

    def allreduce_coalesced(self, tensors: Tensors, options: Any) -> Any:
        return self.allreduce(tensors, options)

    def reduce(self, tensors: Tensors, options: Any) -> Any:
        results = [tensor.clone() for tensor in tensors]
        self._reduced(results, options)
        if self.rank() == options.rootRank:
            _copy(tensors, results)
        return _completed_work(tensors)

    def broadcast(self, tensors: Tensors, options: Any) -> Any:
        collectives.broadcast(tensors, self.rank() == options.rootRank)
        return _completed_work(tensors)

    def allgather(self, results: list[Tensors], tensors: Tensors, options: Any = None) -> Any:
        for gathered, tensor in zip(results, tensors, strict=True):
            _copy(gathered, self._gathered(tensor))
        return _completed_work(results)

    def _allgather_base(self, result: torch.Tensor, tensor: torch.Tensor, _: Any = None) -> Any:
        _copy([result], [torch.stack(self._gathered(tensor)).reshape(result.shape)])
        return _completed_work([result])

    def gather(self, results: list[Tensors], tensors: Tensors, options: Any) -> Any:
        for i, tensor in enumerate(tensors):
            gathered = self._gathered(tensor)
            if self.rank() == options.rootRank:
                _copy(results[i], gathered)
        return _completed_work(results)

    def scatter(self, results: Tensors, tensors: list[Tensors], options: Any) -> Any:
        for i, result in enumerate(results):
            is_root = self.rank() == options.rootRank
            parts = torch.stack(tensors[i] if is_root else [result] * self.size())
            collectives.broadcast([parts], is_root)
            _copy([result], [parts[self.rank()]])
        return _completed_work(results)

    def reduce_scatter(self, results: Tensors, tensors: list[Tensors], options: Any) -> Any:
        for result, parts in zip(results, tensors, strict=True):
            whole = torch.stack(parts)
            self._reduced([whole], options)
            _copy([result], [whole[self.rank()]])
        return _completed_work(results)

    def _reduce_scatter_base(self, result: torch.Tensor, tensor: torch.Tensor, options: Any) -> Any:
        return self.reduce_scatter([result], [list(tensor.chunk(self.size()))], options)

    def alltoall(self, results: Tensors, tensors: Tensors, options: Any = None) -> Any:
        _copy(results, [parts[self.rank()] for parts in self._gathered(torch.stack(tensors))])
        return _completed_work(results)

    def alltoall_base(
        self, result: torch.Tensor, tensor: torch.Tensor, to: Any, of: Any, options: Any = None
    ) -> Any:
        if to or of:
            raise NotImplementedError("parts of different sizes")
        chunks = [list(x.chunk(self.size()))[self.rank()] for x in self._gathered(tensor)]
        _copy([result], [torch.cat(chunks).reshape(result.shape)])
        return _completed_work([result])

    def barrier(self, opts: Any = None) -> Any:
        collectives.wait()
        return _completed_work([])

    def monitored_barrier(self, *_: Any) -> Any:
        return self.barrier()


@torch.no_grad()
def _copy(to: Tensors, tensors: Tensors) -> None:
    for place, tensor in zip(to, tensors, strict=True):
        place.copy_(tensor)


def _completed_work(result: Any) -> Any:
    return xla_backend._ret_work(result)


def _configured_value(url: str, option: str, variable: str) -> int | None:
    """The value that the program gives, or else its launcher."""
    given = parse_qs(urlparse(url).query).get(option) or [os.environ.get(variable, "")]
    return int(given[0]) if given[0] else None


def _rendezvous(stock: Any, url: str, timeout: Any = ..., **options: Any) -> Iterator[Any]:
    """Store, rank and number of ranks.

    Raises ValueError if the program expects a number of ranks other than the number of devices,
    and RuntimeError if torchrun has started several processes on the CPU.
    """
    if dist.is_torchelastic_launched() and int(os.environ.get("LOCAL_WORLD_SIZE") or 1) > 1:
        if xr.device_type() == "CPU":  # each process would be a separate world, or wait
            raise RuntimeError(
                "torch_xla has one process for all devices of the CPU: without a TPU, start one "
                "by torchrun"
            )
    if not dist.is_torchelastic_launched():
        # An address in the program is for a machine with GPUs; torch_xla finds its own.
        os.environ.pop("MASTER_ADDR", None)
    store, ordinal, size = next(stock(url, timeout, **options))
    world = _configured_value(url, "world_size", "WORLD_SIZE")
    if world not in (None, size):
        raise ValueError(
            f"the program is set up for {world} ranks, and there are {size}, one for each device"
        )
    rank = _configured_value(url, "rank", "RANK")
    wake()
    if not ordinal:
        ranks = "1 rank" if size == 1 else f"{size} ranks, each with its own device"
        say(f"{ranks} ({get_device_name()})")
    yield store, ordinal if rank is None else rank, size


def _objects(function: Any) -> Any:
    """``function`` for the group of all ranks, otherwise torch's own function of that name.

    torch converts objects to bytes on the device, which torch_xla 2.9 can't gather.
    """
    stock = getattr(dist, function.__name__)
    parameters = inspect.signature(stock)

    @functools.wraps(stock)
    def with_objects(*args: Any, **kwargs: Any) -> None:
        given = parameters.bind(*args, **kwargs)
        given.apply_defaults()
        world = dist.group.WORLD if dist.is_initialized() else None
        if isinstance(world, ProcessGroup) and given.arguments["group"] in (None, world):
            function(world, given.arguments)
        else:
            stock(*args, **kwargs)

    return with_objects


def all_gather_object(group: ProcessGroup, given: dict[str, Any]) -> None:
    given["object_list"][:] = group.gather_objects(given["obj"])


def gather_object(group: ProcessGroup, given: dict[str, Any]) -> None:
    found = group.gather_objects(given["obj"])
    if group.rank() == (given["dst"] or given["group_dst"] or 0):
        given["object_gather_list"][:] = found


def broadcast_object_list(group: ProcessGroup, given: dict[str, Any]) -> None:
    root, values = given["src"] or given["group_src"] or 0, given["object_list"]
    values[:] = group.gather_objects(values if group.rank() == root else None)[root]


def install() -> None:
    """Replace torch_xla's group and rendezvous."""
    xla_backend.ProcessGroupXla = ProcessGroup  # type: ignore[misc]
    dist.Backend.default_device_backend_map["xla"] = "xla"
    # A function of the same name hides the module.
    handlers: Any = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    handlers["xla"] = functools.partial(_rendezvous, handlers["xla"])
    for function in (all_gather_object, gather_object, broadcast_object_list):
        replacement = _objects(function)
        for module in (dist, dist.distributed_c10d):
            setattr(module, function.__name__, replacement)
