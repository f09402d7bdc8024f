"""torch.profiler's interface to the device's profiler; TensorBoard and XProf open its traces.

torch's own profiler only sees the host: to it, the device's work is a single call.
"""

import gzip
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerAction

from . import device_traces

_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """`torch.profiler.profile`: traces what happens inside of it, or in the steps of a schedule.

    A trace goes where ``on_trace_ready`` says: `tensorboard_trace_handler(folder)` and
    `export_chrome_trace(file)` write what TensorBoard's profile plugin opens (plugins/profile/…,
    beside the file). Options for shapes, memory, FLOPs and modules are ignored: XProf always shows
    them.
    """

    def __init__(
        self,
        *,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        **ignored: object,
    ) -> None:
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self._folder: Path | None = None  # the folder of the last trace
        self._records = False

    def __enter__(self) -> "profile":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        self._follow(self.schedule(self.step_num))

    def stop(self) -> None:
        """End the current trace, and pass it to the handler."""
        if not self._records:
            return
        self._records = False
        device_traces.stop()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The next step begins."""
        saves = self.schedule(self.step_num) is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        if saves:
            self.stop()
        self._follow(self.schedule(self.step_num))

    def _follow(self, action: ProfilerAction) -> None:
        if action in _RECORDS and not self._records:
            self._forget()
            self._folder = Path(tempfile.mkdtemp(prefix="tpu_runtime_trace_"))
            device_traces.start(str(self._folder))
            self._records = True
        elif action not in _RECORDS:
            self.stop()

    def export_chrome_trace(self, path: str) -> None:
        """Write the trace into the folder of ``path``, and to ``path`` itself if possible."""
        if self._folder is None:
            raise RuntimeError("export_chrome_trace: nothing has been traced")
        shutil.copytree(self._folder, Path(path).parent, dirs_exist_ok=True)
        for found in self._folder.rglob("*.trace.json.gz"):
            zipped = found.read_bytes()
            Path(path).write_bytes(zipped if path.endswith(".gz") else gzip.decompress(zipped))

    def key_averages(self, *args: object, **kwargs: object) -> "_Averages":
        """Say where to look instead."""
        return _Averages()

    def _forget(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __del__(self) -> None:
        self._forget()


class _Averages:
    """Replaces torch's table of operators, which a device that runs one program doesn't have."""

    def table(self, *args: object, **kwargs: object) -> str:
        return "device times are in the trace: open it with TensorBoard or XProf"

    __str__ = table
