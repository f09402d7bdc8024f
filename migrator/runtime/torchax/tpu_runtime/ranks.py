"""Ranks: a process for each device, started by torchrun or by `torch.multiprocessing.spawn`.

JAX makes one job of them, in which each process has one device and sees those of the others. It
has to be told before a process first uses its device: where torchrun has started it in ``setup``,
else when the process group is made. Ranks find each other by torch's own store.
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

from . import device, topology

NEEDED_BY = "distributed launch spawn"

_COORDINATOR = "tpu_runtime/coordinator"
_ENDED = "tpu_runtime/ended"

_joined: tuple[int, int] | None = None  # this rank, and how many there are
_local: tuple[int, int] | None = None  # the same among the processes of this host
_parent_has_device = False
_store: Any = None
_has_failed = False
_describe = device.describe


def device_count() -> int:
    """The devices of this host, counted without starting JAX's back end: they may be others'."""
    if _local is not None:
        return _local[1]  # by as many processes
    if xla_bridge.backends_are_initialized() and _joined is None:
        return jax.device_count()
    return topology.device_count() or jax.device_count()


def describe(which: device.DeviceLike) -> device.DeviceProperties:
    """What is known of a device, without starting JAX's back end before the ranks are joined."""
    if xla_bridge.backends_are_initialized() or _joined is not None:
        return _describe(which)
    name = topology.name()
    return device.DeviceProperties(name, 0, 1, platform=name.partition(" ")[0].lower())


def join(store: Any, rank: int, size: int) -> None:
    """Make this process the ``rank``-th of one job of JAX.

    Raises RuntimeError where this process, or the one that started it, has used the device before.
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
    # It would take the signal by which a launcher ends the ranks.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(address, size, rank, cluster_detection_method="deactivate")
    _joined, _store = (rank, size), store
    atexit.register(_end)


def has_ended(rank: int) -> bool:
    """Whether a rank's program has come to its end."""
    return bool(_store.check([f"{_ENDED}/{rank}"]))


def _end() -> None:
    """The end of this process: at once where it has failed, else the others are told.

    JAX waits then until all ranks have come to their ends. Some would wait for one that has failed,
    whose launcher would not see that, and not end them.
    """
    if _has_failed or getattr(sys, "last_value", None) is not None:  # an error that nobody caught
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    if _joined is not None:
        with suppress(RuntimeError):  # the store may be gone
            _store.set(f"{_ENDED}/{_joined[0]}", "")


def _host(store: Any) -> str:
    """An address of rank 0, which holds the store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", "") or "localhost")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def _take_place(rank: int, count: int) -> None:
    """This process is the ``rank``-th of this host."""
    global _local
    if count == 1:
        return
    _local = rank, count
    if topology.chips():
        topology.take_chip(rank, count)


class _Rank:
    """What a started process runs."""

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
        except Exception:  # torch hands it to the parent, and exits
            _has_failed = True
            raise


def _starting(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.multiprocessing.start_processes`, which `spawn` is made of."""

    @functools.wraps(stock)
    def start_processes(
        fn: Callable[..., Any], args: Any = (), nprocs: int = 1, *rest: Any, **options: Any
    ) -> Any:
        task = _Rank(fn, nprocs) if nprocs > 1 else fn
        return stock(task, args, nprocs, *rest, **options)

    return start_processes


def _join_launched() -> None:
    """A rank of torchrun finds the others by the launcher's own store."""
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
    """Know the ranks that are started, and the others if this process is one of torchrun's."""
    device.count, device.describe = device_count, describe
    # A function of the same name hides the module.
    spawning: Any = importlib.import_module("torch.multiprocessing.spawn")
    start_processes = _starting(spawning.start_processes)
    for module in (spawning, importlib.import_module("torch.multiprocessing")):
        module.start_processes = start_processes
    if dist.is_available() and dist.is_torchelastic_launched():
        _join_launched()
