"""Timing as ``torch.cuda.Event`` does it: wait for the device, then read the clock."""

import time

from ..device import synchronize


class Event:
    """Stands in for ``torch.cuda.Event``; the arguments are the same.

    ``record`` waits for the device, so the time between two events holds all the work started
    between them. ``blocking`` and ``interprocess`` change nothing.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.enable_timing = enable_timing
        self._seconds: float | None = None

    def record(self, stream: object = None) -> None:
        """Wait for the device and take the time. There are no streams: ``stream`` is ignored."""
        synchronize()
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        """Return at once: ``record`` has already waited."""

    def wait(self, stream: object = None) -> None:
        """Return at once: ``record`` has already waited."""

    def query(self) -> bool:
        """True: all work before ``record`` is done when it returns."""
        return True

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this event to ``end_event``.

        Raises RuntimeError unless both have ``enable_timing=True`` and were recorded.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("both events must be created with enable_timing=True")
        if self._seconds is None or end_event._seconds is None:
            raise RuntimeError("both events must be recorded before the time between them is asked")
        return (end_event._seconds - self._seconds) * 1000.0
