"""`torch.distributed` for ranks with one JAX device each, or for one process that has them all.

    torch.distributed.init_process_group("jax")

XLA exchanges device tensors (collectives.py), and hosts exchange them between two ranks; CPU
tensors, objects and barriers use gloo, whose group is inside this one. With
`init_method="jax://"` one process drives all devices (single_process_group.py).
"""

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import jax
import torch
import torch.distributed as dist
import torchax
from jax._src.core import trace_state_clean
from torchax.tensor import Environment, Tensor

from ..compilation.compile_state import NotCompilable
from ..device import DEVICE_TYPE
from ..dispatch.calls import is_device_tensor, patch
from . import collectives, launching, mesh, single_process_group
from .host_receive import Received
from .process_group_base import NamedGroup, Tensors, completed_work

_OPERATIONS = {
    dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg", dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min", dist.ReduceOp.MAX: "max", dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor", dist.ReduceOp.BXOR: "bxor",
}  # fmt: skip


class ProcessGroup(NamedGroup):
    """Some ranks, or all."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._cpu: Any = dist.ProcessGroupGloo(dist.PrefixStore("cpu", store), rank, size, timeout)
        device = jax.local_devices()[0]
        store.set(f"device/{rank}", f"{device.id} {jax.process_index()}")
        told = [store.get(f"device/{r}").decode().split() for r in range(size)]
        self.exchange = collectives.of_devices(tuple(int(number) for number, _ in told))
        self._meeting: Meeting | None = None
        if size > 1 and _is_checked(device):
            self._meeting = Meeting(store, rank, [int(process) for _, process in told], timeout)

    def meet(self, what: str, tensors: Sequence[torch.Tensor] = ()) -> None:
        """Where exchanges are checked: continue when all ranks have reached the same one.

        Raises NotCompilable in a traced program, before the others are told anything.
        """
        if self.size() > 1 and not trace_state_clean():
            raise NotCompilable("it exchanges something with other ranks")
        if self._meeting is not None:
            shapes = (f" {tuple(t.shape)} of {str(t.dtype)[6:]}" for t in tensors)
            self._meeting.come(what + ",".join(shapes))

    # ---- all of them have the same -------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        operation = _operation(opts)
        self.meet(f"all_reduce ({operation})", tensors)
        if not _are_on_device(tensors):
            return self._reduced_on_cpu(tensors, opts, operation)
        _put(tensors, self.exchange.reduce(_arrays(tensors), operation))
        return completed_work(tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def _reduced_on_cpu(self, tensors: Tensors, opts: Any, operation: str) -> Any:
        if operation != "avg":
            return self._cpu.allreduce(tensors, opts)
        self._cpu.allreduce(tensors, dist.AllreduceOptions()).wait()
        for tensor in tensors:
            exact = not (tensor.is_floating_point() or tensor.is_complex())
            tensor.div_(self.size(), rounding_mode="trunc" if exact else None)
        return completed_work(tensors)

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        operation = _operation(opts)
        self.meet(f"reduce ({operation}) to rank {opts.rootRank}", tensors)
        if not _are_on_device(tensors):
            return self._cpu.reduce(tensors, opts)
        results = self.exchange.reduce(_arrays(tensors), operation)
        if self.rank() == opts.rootRank:
            _put(tensors, results)
        return completed_work(tensors)

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        self.meet(f"broadcast from rank {opts.rootRank}", tensors)
        if not _are_on_device(tensors):
            return self._cpu.broadcast(tensors, opts)
        _put(tensors, self.exchange.broadcast(_arrays(tensors), opts.rootRank))
        return completed_work(tensors)

    # ---- each has a part -----------------------------------------------------------------------

    def allgather(self, results: list[Tensors], tensors: Tensors, opts: Any = None) -> Any:
        self.meet("all_gather", tensors)
        if not _are_on_device(tensors):
            return self._cpu.allgather(results, tensors, *_given(opts))
        for places, rows in zip(results, self.exchange.gather(_arrays(tensors)), strict=True):
            _put(places, list(rows))
        return completed_work(results)

    def _allgather_base(self, result: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        self.meet("all_gather_into_tensor", [tensor])
        if not _are_on_device([tensor]):
            return self._cpu._allgather_base(result, tensor, *_given(opts))
        _put([result], self.exchange.gather(_arrays([tensor])))
        return completed_work([result])

    def gather(self, results: list[Tensors], tensors: Tensors, opts: Any) -> Any:
        self.meet(f"gather to rank {opts.rootRank}", tensors)
        if not _are_on_device(tensors):
            return self._cpu.gather(results, tensors, opts)
        rows = self.exchange.gather(_arrays(tensors))
        if self.rank() == opts.rootRank:
            for places, row in zip(results, rows, strict=True):
                _put(places, list(row))
        return completed_work(results)

    def scatter(self, results: Tensors, tensors: list[Tensors], opts: Any) -> Any:
        self.meet(f"scatter from rank {opts.rootRank}", results)
        if not _are_on_device(results):
            return self._cpu.scatter(results, tensors, opts)
        for i, result in enumerate(results):
            parts = tensors[i] if self.rank() == opts.rootRank else [result] * self.size()
            rows = jax.numpy.stack(_arrays(parts))
            _put([result], self.exchange.scatter([rows], opts.rootRank))
        return completed_work(results)

    def reduce_scatter(self, results: Tensors, tensors: list[Tensors], opts: Any) -> Any:
        operation = _operation(opts)
        self.meet(f"reduce_scatter ({operation})", results)
        if not _are_on_device(results):
            return self._cpu.reduce_scatter(results, tensors, opts)
        rows = [jax.numpy.stack(_arrays(parts)) for parts in tensors]
        _put(results, self.exchange.reduce_scatter(rows, operation))
        return completed_work(results)

    def _reduce_scatter_base(self, result: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Any:
        operation = _operation(opts)
        self.meet(f"reduce_scatter_tensor ({operation})", [result])
        if not _are_on_device([tensor]):
            return self._cpu._reduce_scatter_base(result, tensor, opts)
        rows = jax.numpy.reshape(_arrays([tensor])[0], (self.size(), *result.shape))
        _put([result], self.exchange.reduce_scatter([rows], operation))
        return completed_work([result])

    def alltoall(self, results: Tensors, tensors: Tensors, opts: Any = None) -> Any:
        self.meet("all_to_all")
        if not _are_on_device(tensors):
            return self._cpu.alltoall(results, tensors, *_given(opts))
        if len({tuple(tensor.shape) for tensor in (*results, *tensors)}) > 1:
            return self._of_different_sizes(results, tensors)
        _put(results, list(self.exchange.transpose([jax.numpy.stack(_arrays(tensors))])[0]))
        return completed_work(results)

    def alltoall_base(
        self, result: torch.Tensor, tensor: torch.Tensor, to: Any, of: Any, opts: Any = None
    ) -> Any:
        """``to``: the lengths of the parts of ``result``, and ``of``: those of ``tensor``."""
        self.meet("all_to_all_single")
        if not _are_on_device([tensor]):
            return self._cpu.alltoall_base(result, tensor, to, of, *_given(opts))
        if to or of:
            count = self.size()
            parts = tensor.split(of or [tensor.shape[0] // count] * count)
            places = result.split(to or [result.shape[0] // count] * count)
            return self._of_different_sizes(list(places), list(parts))
        rows = jax.numpy.reshape(_arrays([tensor])[0], (self.size(), -1))
        _put([result], self.exchange.transpose([rows]))
        return completed_work([result])

    def _of_different_sizes(self, results: Tensors, tensors: Tensors) -> Any:
        """Through gloo: a program has the same shapes on all ranks."""
        given = [tensor.detach().cpu() for tensor in tensors]
        places = [torch.empty(p.shape, dtype=p.dtype, device="cpu") for p in results]
        joined = torch.cat([place.reshape(-1) for place in places])
        self._cpu.alltoall_base(
            joined, torch.cat([tensor.reshape(-1) for tensor in given]),
            [place.numel() for place in places], [tensor.numel() for tensor in given],
        ).wait()  # fmt: skip
        for result, part in zip(results, joined.split([p.numel() for p in places]), strict=True):
            _copy(result, part.reshape(result.shape))
        return completed_work(results)

    # ---- two of them, and nothing --------------------------------------------------------------

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Any:
        if not trace_state_clean():
            raise NotCompilable("it sends something to another rank")
        return self._cpu.send([tensor.detach().cpu() for tensor in tensors], to, tag)

    def recv(self, tensors: Tensors, of: int, tag: int = 0) -> Any:
        return self._received(tensors, lambda places: self._cpu.recv(places, of, tag))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        return self._received(tensors, lambda places: self._cpu.recv_anysource(places, tag))

    def _received(self, tensors: Tensors, receive: Callable[[Tensors], Any]) -> Any:
        if not trace_state_clean():
            raise NotCompilable("it receives something from another rank")
        if not _are_on_device(tensors):
            return receive(tensors)
        return Received(tensors, receive)

    def barrier(self, opts: Any = None) -> Any:
        self.meet("barrier")
        return self._cpu.barrier(dist.BarrierOptions())

    def monitored_barrier(self, timeout: timedelta | None = None, *options: Any) -> Any:
        self.meet("monitored_barrier")
        return self._cpu.monitored_barrier(timeout, *options)


class Meeting:
    """Where each rank announces its next exchange, so that diverging ranks are named.

    On a TPU, ranks that reach different programs wait for each other forever. So this is done on
    the CPU, where programs are tested, and with TORCH_DISTRIBUTED_DEBUG=DETAIL, with which torch
    does the same for NCCL.
    """

    def __init__(self, store: Any, rank: int, processes: list[int], timeout: timedelta) -> None:
        self._store = dist.PrefixStore("meeting", store)
        self._rank, self._processes, self._timeout = rank, processes, timeout
        self._count = 0

    def come(self, what: str) -> None:
        """Raises RuntimeError if another rank is at another exchange, or never arrives."""
        self._count += 1
        self._store.set(f"{self._count}/{self._rank}", what)
        for rank in range(len(self._processes)):
            other = self._of(rank, what)
            if other != what:
                raise RuntimeError(
                    f"exchange {self._count}: rank {self._rank} does {what}, but rank {rank} "
                    f"does {other}: all ranks have to do the same exchanges in the same order"
                )
        if self._count > 2:  # all have read the entries before the last one
            self._store.delete_key(f"{self._count - 2}/{self._rank}")

    def _of(self, rank: int, what: str) -> str:
        key, end = f"{self._count}/{rank}", time.monotonic() + self._timeout.total_seconds()
        pause = 0.001
        while not self._store.check([key]):  # a wait that times out prints warnings
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            if launching.has_ended(self._processes[rank]) and not self._store.check([key]):
                how = "has ended"
            elif time.monotonic() > end:
                how = f"did not arrive within {self._timeout}"
            else:
                continue
            raise RuntimeError(
                f"exchange {self._count}: rank {self._rank} waits for {what}, and rank {rank} {how}"
            )
        return str(self._store.get(key).decode())


def _is_checked(device: jax.Device) -> bool:
    return device.platform == "cpu" or os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL"


def _operation(opts: Any) -> str:
    operation = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    # torch's object for an operation equals its name, but has another hash.
    found = next((name for kind, name in _OPERATIONS.items() if operation == kind), None)
    if found is None:
        raise NotImplementedError(f"{operation} of torch.distributed")
    return found


def _given(opts: Any) -> tuple[Any, ...]:
    return () if opts is None else (opts,)


def _are_on_device(tensors: Tensors) -> bool:
    return any(map(is_device_tensor, tensors))


def _arrays(tensors: Tensors) -> list[Any]:
    env = torchax.default_env()
    moved: list[Any] = [t if is_device_tensor(t) else t.to(DEVICE_TYPE) for t in tensors]
    with env, torch._C.DisableTorchFunction():
        return [tensor.detach().jax() for tensor in moved]


def _put(tensors: Tensors, arrays: list[Any]) -> None:
    env = torchax.default_env()
    for tensor, array in zip(tensors, arrays, strict=True):
        _copy(tensor, Tensor(array.reshape(tuple(tensor.shape)), env))


@torch.no_grad()
def _copy(to: torch.Tensor, value: torch.Tensor) -> None:
    to.copy_(value)


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    if single_process_group.is_used():
        return single_process_group.WorldOfOne(rank, size)
    if not dist.is_initialized():  # otherwise it is a group of some ranks
        launching.join(store, rank, size)
    group = ProcessGroup(store, rank, size, timeout)
    if rank == 0 and not dist.is_initialized():
        with_devices = "1 rank" if size == 1 else f"{size} ranks, each with its own device"
        mesh.say(f"{with_devices} ({jax.devices()[0].device_kind})")
    return group


def install(env: Environment) -> None:
    """Register the back end with torch."""
    dist.Backend.register_backend(DEVICE_TYPE, _create, devices=[DEVICE_TYPE, "cpu"])
    single_process_group.install(env)
    # A barrier asks for the accelerator, which a device implemented in Python can't answer.
    patch(torch._C, _get_accelerator=lambda check=None: torch.device(DEVICE_TYPE))
