"""Long work for an agent: it reports progress, and ends when the agent cancels it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context

from migrator.errors import UsageError

Tick = Callable[[int, int], None]
_Found = TypeVar("_Found")
_EVERY = 0.5  # seconds between reports
_GRACE = 6.0  # seconds in which `verify` ends its own child, each time that it is asked
_LINES = 20  # of what a run said


class _Cancelled(Exception):
    pass


async def in_thread(context: Context[Any, Any], work: Callable[[Tick], _Found]) -> _Found:
    """Run `work` beside the server; it is given what to call with (files done, files in all)."""
    wanted, said = True, 0.0

    def tick(done: int, total: int) -> None:
        nonlocal said
        if not wanted:
            raise _Cancelled
        if (now := time.monotonic()) - said > _EVERY:
            said = now
            report = partial(context.report_progress, done, total, f"{done} of {total} files")
            anyio.from_thread.run(report)

    try:
        return await anyio.to_thread.run_sync(partial(work, tick), abandon_on_cancel=True)
    finally:
        wanted = False


async def in_child(context: Context[Any, Any], arguments: Sequence[str], folder: Path) -> str:
    """What `tpu-migrate ARGUMENTS` prints; each line of its progress is reported.

    Raises:
        UsageError: it printed nothing; with what it said.
    """
    command = [sys.executable, "-P", "-m", "migrator", *arguments]
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True
    )
    lines: list[str] = []
    printed = bytearray()
    try:
        async with anyio.create_task_group() as group:
            assert process.stdout is not None and process.stderr is not None
            group.start_soon(_report, context, process.stderr, lines)
            async for chunk in process.stdout:
                printed += chunk
        await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    if not printed:
        raise UsageError("\n".join(lines[-_LINES:]) or f"exit code {process.returncode}")
    return printed.decode("utf-8", "replace")


async def _report(
    context: Context[Any, Any], stream: anyio.abc.ByteReceiveStream, lines: list[str]
) -> None:
    text = ""
    async for chunk in stream:
        *whole, text = (text + chunk.decode("utf-8", "replace")).split("\n")
        for line in filter(None, map(str.strip, whole)):
            lines.append(line)
            await context.report_progress(len(lines), None, line)


async def _end(process: anyio.abc.Process) -> None:
    """End the child: interrupted, it ends the program that it runs, and what that has started."""
    if sys.platform == "win32":
        if process.returncode is None:
            kill = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
            await anyio.run_process(kill, check=False)
    else:
        for number in (signal.SIGINT, signal.SIGTERM):
            if process.returncode is None:
                process.send_signal(number)
                with anyio.move_on_after(_GRACE):
                    await process.wait()
    if process.returncode is None:
        process.kill()
    await process.aclose()
