"""Run a backward pass on the CPU before the first use of the device.

At its first backward pass torch counts the devices of each kind, once, and starts a thread for
each: torch_xla 2.9 returns 0 while its runtime isn't started, and all later backward passes on the
device fail. So the main process, which owns the device, starts the runtime before that.
"""

import functools
import multiprocessing
from typing import Any

import torch
import torch_xla

from ..device import is_resting


def install() -> None:
    """Intercept the first backward pass of this process."""
    run = torch.autograd._engine_run_backward

    @functools.wraps(run)
    def start_and_run(*args: Any, **kwargs: Any) -> Any:
        if multiprocessing.parent_process() is None and not is_resting():
            torch_xla.device()
        torch.autograd._engine_run_backward = run
        return run(*args, **kwargs)

    torch.autograd._engine_run_backward = start_and_run
