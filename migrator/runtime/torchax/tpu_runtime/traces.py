"""Traces of the device, by jax.profiler."""

import jax

from .device import synchronize


def start(folder: str) -> None:
    """Trace from here on, into ``folder``."""
    jax.profiler.start_trace(folder)


def stop() -> None:
    """End the trace, with what has been asked for until now."""
    synchronize()
    jax.profiler.stop_trace()
