"""Runs one script in a subprocess: own process group, time limit, log, progress."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from .in_target_python import child_environment

_POLL = 0.1  # seconds between checks of the child
_GRACE = 3.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Run:
    """How a script ended. ``returncode`` is None if the time limit ended it."""

    returncode: int | None
    seconds: float
    log: Path

    def failure(self) -> str | None:
        """One line, or None for a success."""
        if self.returncode == 0:
            return None
        if self.returncode is None:
            return f"stopped after {self.seconds:.0f} s (--timeout)"
        if self.returncode < 0:
            return f"ended by {signal.Signals(-self.returncode).name}{_likely(-self.returncode)}"
        return f"failed with exit code {self.returncode}"

    def tail(self, lines: int = 25) -> str:
        """The last lines of the log."""
        return "\n".join(_last_bytes(self.log).splitlines()[-lines:])


def _likely(number: int) -> str:
    return " (out of memory?)" if number == getattr(signal, "SIGKILL", None) else ""


def _last_bytes(path: Path, size: int = 64_000) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - size))
            return log.read().decode("utf-8", errors="replace").replace("\r", "\n")
    except OSError:
        return ""


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    timeout: float,
    env: Mapping[str, str] | None = None,
    on_progress: Callable[[float, str], None] | None = None,
    grace: float = _GRACE,
) -> Run:
    """Run ``command`` in ``cwd``; standard output and error go to ``log``, input is empty.

    After ``timeout`` seconds (SIGTERM, then SIGKILL ``grace`` later), at an interrupt and at the
    end, nothing of its process group is left running. ``on_progress(seconds, last line)`` is called
    about ten times a second. Raises OSError where the command cannot be started.
    """
    start = time.monotonic()
    with log.open("wb") as sink, _terminate_as_interrupt():
        child = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=child_environment({"PYTHONUNBUFFERED": "1", **(env or {})}),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        polite = _GRACE
        try:
            returncode = _wait(child, start, timeout, log, on_progress)
            polite = grace
        finally:
            _end_group(child, polite)
    return Run(returncode, time.monotonic() - start, log)


def _wait(
    child: subprocess.Popen[bytes],
    start: float,
    timeout: float,
    log: Path,
    on_progress: Callable[[float, str], None] | None,
) -> int | None:
    while (elapsed := time.monotonic() - start) < timeout:
        try:
            return child.wait(min(_POLL, timeout - elapsed))
        except subprocess.TimeoutExpired:
            if on_progress is not None:
                lines = _last_bytes(log, 2_000).split("\n")
                on_progress(elapsed, next((x.strip() for x in reversed(lines) if x.strip()), ""))
    return None


def _end_group(child: subprocess.Popen[bytes], grace: float) -> None:
    """End the child and everything it started: first with SIGTERM, then with SIGKILL."""
    if sys.platform == "win32":
        if child.poll() is None:
            kill = ["taskkill", "/F", "/T", "/PID", str(child.pid)]
            subprocess.run(kill, stdout=subprocess.DEVNULL, check=False)
            child.wait()
        return
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    # Also after a normal end: workers of a data loader must not outlive the script.
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM of a group of zombies
        os.killpg(group, number)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """On SIGTERM to tpu-migrate, also end the child, which has its own process group."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
