"""Traces of the device, with torch_xla.debug.profiler."""

import torch_xla.debug.profiler as xp

from ..device import synchronize


def start(folder: str) -> None:
    """Trace from here on, into ``folder``."""
    xp.start_trace(folder)


def stop() -> None:
    """End the trace, including all work requested so far."""
    synchronize()
    xp.stop_trace()
