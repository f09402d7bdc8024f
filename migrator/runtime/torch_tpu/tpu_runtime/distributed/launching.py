"""Ranks like those that torch_xla starts, and the step of an optimizer in such a program."""

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from ..device import accelerator


def launch(fn: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
    """Call ``fn(rank, *args)`` in one process per device, or in torchrun's process.

    Their process group is created before, and destroyed afterwards.
    """
    if "RANK" in os.environ:
        _run(int(os.environ["LOCAL_RANK"]), fn, args)
        return
    device = accelerator()
    count = torch.accelerator.device_count() or 1
    if device.type == "tpu":
        torch.tpu.distributed.set_tpu_launch_env()  # type: ignore[attr-defined]
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    torch.multiprocessing.spawn(_rank, (count, port, fn, args), nprocs=count)


def optimizer_step(optimizer: torch.optim.Optimizer, **arguments: Any) -> Any:
    """``optimizer.step(**arguments)``, with the mean of all ranks' gradients."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for gradient in (p.grad for p in parameters if p.grad is not None):
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
    return optimizer.step(**arguments)


def _rank(rank: int, count: int, port: int, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ.update({name: str(number) for name, number in names.items()})
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    _run(rank, fn, args)


def _run(rank: int, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    dist.init_process_group(dist.get_default_backend_for_device(accelerator()))
    try:
        fn(rank, *args)
    finally:
        dist.destroy_process_group()
