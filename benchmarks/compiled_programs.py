"""What measurements of torchax's compiled programs share: their number, and their memory.

`tpu_runtime` has to be importable: see `migrator.targets.copies.folder_to_import`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax


def peak(compiled: Iterable[Any]) -> int:
    """The most bytes that one of these programs needs at a time."""
    found = [program.memory_analysis() for program in compiled]
    return max(
        (
            m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes
            - m.alias_size_in_bytes
            for m in found
        ),
        default=0,
    )  # fmt: skip


def recorded_programs(calls: int = 0) -> list[Any]:
    """Executables of the lazy graph that have run more than so many times."""
    from tpu_runtime.lazy import lazy_programs

    known = lazy_programs._programs.values()
    return [program._compiled for program in known if program._compiled and program.calls > calls]


@contextmanager
def counted() -> Iterator[list[float]]:
    """The seconds of each program that XLA compiles meanwhile."""
    compiled: list[float] = []
    is_open = True

    def listen(event: str, seconds: float, **_: Any) -> None:
        if is_open and event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        is_open = False
