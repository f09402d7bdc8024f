"""Ranks: one process per device, started by torchrun or by `torch.multiprocessing.spawn`.

JAX joins them into one job, in which each process has one device and sees those of the others. This
must happen before a process first uses its device: in ``setup`` if torchrun has started it,
otherwise when the process group is created. Ranks find each other through torch's own store.
"""

import atexit
import functools
import importlib
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import jax
import torch.distributed as dist
from jax._src import xla_bridge
from torchax.tensor import Environment

from .. import device
from ..lazy import assertions
from ..profiling import report, report_writing
from . import topology

_COORDINATOR = "tpu_runtime/coordinator"
_ENDED = "tpu_runtime/ended"

_joined: tuple[int, int] | None = None  # this rank, and the number of ranks
_local: tuple[int, int] | None = None  # the same among the processes of this host
_parent_has_device = False
_store: Any = None
_has_failed = False
_describe = device.describe


def device_count() -> int:
    """The number of devices of this host, without starting JAX: they may belong to other ranks."""
    if _local is not None:
        return _local[1]  # one for each process
    if xla_bridge.backends_are_initialized() and _joined is None:
        return jax.device_count()
    return topology.device_count() or jax.device_count()


def describe(which: device.DeviceLike) -> device.DeviceProperties:
    """A device's properties, without starting JAX's back end before the ranks are joined."""
    if xla_bridge.backends_are_initialized() or _joined is not None:
        return _describe(which)
    name = topology.name()
    return device.DeviceProperties(name, 0, 1, platform=name.partition(" ")[0].lower())


def join(store: Any, rank: int, size: int) -> None:
    """Make this process the ``rank``-th of one JAX job.

    Raises RuntimeError if this process, or the one that started it, has already used the device.
    """
    global _joined, _store
    if size == 1 or _joined == (rank, size):
        return
    if _joined is not None:
        raise RuntimeError(f"this process is rank {_joined[0]} of {_joined[1]}, not of {size}")
    if _parent_has_device:
        raise RuntimeError(
            "the process that starts the ranks has used the device, which it therefore holds: "
            "what runs before torch.multiprocessing.spawn may only use the CPU"
        )
    if xla_bridge.backends_are_initialized():
        raise RuntimeError(
            "the device was used before init_process_group: what runs before may only use the CPU"
        )
    if not topology.chips():
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.config.update("jax_num_cpu_devices", 1)
    if rank == 0:
        store.set(_COORDINATOR, f"{_host(store)}:{_free_port()}")
    address = store.get(_COORDINATOR).decode()
    # It would catch the signal with which a launcher ends the ranks.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(address, size, rank, cluster_detection_method="deactivate")
    _joined, _store = (rank, size), store
    report_writing.note_rank(rank)
    atexit.register(_end)


def has_ended(rank: int) -> bool:
    """Whether a rank's program has ended."""
    return bool(_store.check([f"{_ENDED}/{rank}"]))


def _end() -> None:
    """The end of this process: at once if it has failed, otherwise after telling the others.

    JAX then waits until all ranks have ended. Some would wait for a failed one, and its launcher
    wouldn't notice the failure and end them.
    """
    has_failed = assertions.fails_at_end() or _has_failed
    if has_failed or getattr(sys, "last_value", None) is not None:  # an uncaught error
        report.finish()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    if _joined is not None:
        with suppress(RuntimeError):  # the store may no longer exist
            _store.set(f"{_ENDED}/{_joined[0]}", "")


def _host(store: Any) -> str:
    """The address of rank 0, which runs the store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", "") or "localhost")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def _take_place(rank: int, count: int) -> None:
    """Make this process the ``rank``-th of this host."""
    global _local
    if count == 1:
        return
    _local = rank, count
    if topology.chips():
        topology.take_chip(rank, count)


class _Rank:
    """The function that a started process runs."""

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        functools.update_wrapper(self, function)
        self._function, self._count = function, count
        self._parent_has_device = xla_bridge.backends_are_initialized()

    def __call__(self, index: int, *args: Any) -> None:
        global _parent_has_device, _has_failed
        _parent_has_device = self._parent_has_device
        _take_place(index, self._count)
        try:
            self._function(index, *args)
            assertions.check()  # such a process calls no exit handlers
        except Exception:  # torch passes it to the parent, and exits
            _has_failed = True
            raise


def _starting(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.multiprocessing.start_processes`, which `spawn` uses."""

    @functools.wraps(stock)
    def start_processes(
        fn: Callable[..., Any], args: Any = (), nprocs: int = 1, *rest: Any, **options: Any
    ) -> Any:
        return stock(_Rank(fn, nprocs), args, nprocs, *rest, **options)

    return start_processes


def _join_launched() -> None:
    """A rank of torchrun finds the others through the launcher's own store."""
    count = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    _take_place(int(os.environ.get("LOCAL_RANK") or 0), count)
    size = int(os.environ.get("WORLD_SIZE") or 1)
    if size == 1 or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
        wait_for_workers=False, timeout=timedelta(minutes=5),
    )  # fmt: skip
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    join(dist.PrefixStore(f"tpu_runtime/{attempt}", store), int(os.environ["RANK"]), size)


def install(env: Environment) -> None:
    """Set up ranks that are started, and join the others if torchrun has started this process."""
    device.count, device.describe = device_count, describe
    # A function of the same name hides the module.
    spawning: Any = importlib.import_module("torch.multiprocessing.spawn")
    start_processes = _starting(spawning.start_processes)
    modules: tuple[Any, ...] = spawning, importlib.import_module("torch.multiprocessing")
    for module in modules:
        module.start_processes = start_processes
    if dist.is_available() and dist.is_torchelastic_launched():
        _join_launched()
