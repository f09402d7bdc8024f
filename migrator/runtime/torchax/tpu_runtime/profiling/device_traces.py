"""Traces of the device, with jax.profiler."""

import jax

from ..device import synchronize


def start(folder: str) -> None:
    """Trace from here on, into ``folder``."""
    jax.profiler.start_trace(folder)


def stop() -> None:
    """End the trace, including all work requested so far."""
    synchronize()
    jax.profiler.stop_trace()
