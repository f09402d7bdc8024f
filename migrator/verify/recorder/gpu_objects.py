"""Streams, events and devices of torch.cuda where the CPU stands in for it."""

from __future__ import annotations

import time

import torch


class Stream:
    """A queue that is always empty, since the CPU has finished when a call returns."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.device = torch.device("cuda", 0)
        self.cuda_stream = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def query(self) -> bool:
        """Whether all work is done."""
        return True

    def is_capturing(self) -> bool:
        """Whether its work is recorded into a graph; optimizers of torch 2.10 ask."""
        return False

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, stream: object) -> None:
        """Wait for nothing."""

    def wait_event(self, event: object) -> None:
        """Wait for nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event` (or a new one) now."""
        event = event or Event()
        event.record()
        return event


class Event:
    """A point in time, by the wall clock."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.seconds = 0.0

    def record(self, stream: object = None) -> None:
        """Note the time."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`."""
        return (end.seconds - self.seconds) * 1000

    def query(self) -> bool:
        """Whether the event has happened."""
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait(self, stream: object = None) -> None:
        """Wait for nothing."""


class DeviceContext:
    """`torch.cuda.device` and `device_of`: a context that changes nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def __enter__(self) -> DeviceContext:
        return self

    def __exit__(self, *exception: object) -> None:
        return None
