"""Traces of modules: `torch.jit.trace`, and TensorBoard's `add_graph`, which makes one.

A target traces a copy on the CPU, so what is called meanwhile can't be compared.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from watch_training import Watch


def install(watch: Watch) -> None:
    """Don't watch while a trace is made, so that the calls after it have the same numbers."""
    for name in ("trace", "trace_module"):
        setattr(torch.jit, name, _unwatched(watch, getattr(torch.jit, name)))


def _unwatched(watch: Watch, stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def trace(*args: Any, **kwargs: Any) -> Any:
        before, watch.paused = watch.paused, True
        try:
            return stock(*args, **kwargs)
        finally:
            watch.paused = before

    return trace
