"""Ranks: one process per device, started by `torch_xla.launch` or by torchrun.

torch_xla 2.9: `launch` waits for the first rank before it checks the others, so the program hangs
if another one has failed and the first waits for it.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.multiprocessing as mp
import torch_xla.runtime as xr
from torch_xla._internal import pjrt, tpu

from ..compilation import persistent_cache
from ..device import CORES, is_started
from ..profiling import report_writing
from ..random_numbers import seeds


def _run_rank(index: int, count: int, function: Callable[[], None]) -> None:
    """The function that a started process runs."""
    os.environ.setdefault("PJRT_LOCAL_PROCESS_RANK", str(index))
    report_writing.note_rank(index)
    persistent_cache.install()
    task = functools.partial(_run_awake, function)
    pjrt._run_thread_per_device(index, count, task, pjrt.initialize_multiprocess)


def _run_awake(function: Callable[[], None]) -> None:
    seeds.wake()
    function()


def _run_ranks(
    function: Callable[..., None], *args: Any, start_method: str = "spawn", **kwargs: Any
) -> None:
    """Run ``function`` in one process per device; a failing one ends all of them.

    Raises RuntimeError if this process has used the device, which the ranks then couldn't get,
    and on TPUs whose chips have two devices; and torch.multiprocessing.spawn's error, with
    its traceback, if one fails.
    """
    if is_started():
        raise RuntimeError(
            "the device was used before torch_xla.launch: what runs before may only use the CPU"
        )
    task = functools.partial(function, *args, **kwargs)
    if os.environ.get(CORES) == "1":
        pjrt._run_singleprocess(functools.partial(_run_awake, task))
        return
    if xr.device_type() == "TPU" and tpu.num_logical_cores_per_chip() > 1:
        raise RuntimeError(
            "a TPU v2 or v3 has two devices in each process, which are no ranks here"
        )
    # On the CPU all devices belong to one process.
    count = tpu.num_local_processes() if xr.device_type() == "TPU" else 1
    mp.start_processes(_run_rank, (count, task), nprocs=count, start_method=start_method)


def install() -> None:
    """Replace torch_xla's way to run ranks; assign its device to a rank of torchrun."""
    pjrt.run_multiprocess = _run_ranks  # type: ignore[assignment]
    count = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    if dist.is_torchelastic_launched() and count > 1 and xr.device_type() == "TPU":
        # Before the first use of a device, maybe before the process group is created.
        rank = os.environ["LOCAL_RANK"]
        report_writing.note_rank(int(os.environ["RANK"]))
        os.environ.setdefault("PJRT_LOCAL_PROCESS_RANK", rank)
        os.environ.setdefault("PJRT_LOCAL_PROCESS_COUNT", str(count))
        tpu.configure_topology(int(rank), count)
