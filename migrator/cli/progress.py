"""Progress of a long run, with the time left: a bar on terminals, a line now and then in logs.

It goes to standard error. A short run says nothing of itself.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from migrator.report.terminal import console

_BAR_AFTER, _LINE_EVERY = 2.0, 30.0  # seconds


class Progress:
    """Told how many files of a run are done; `silent` says nothing."""

    def __init__(self, silent: bool) -> None:
        self.silent = silent
        self._out = sys.stderr
        self._started = self._said = time.monotonic()
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        if self.silent:
            return
        now = time.monotonic()
        if done < self._done:  # another run for the same command
            self._started = now
        self._done = done
        left = (now - self._started) / done * (total - done) if done else 0.0
        if self._out.isatty():
            if self._bar is not None or (now - self._started > _BAR_AFTER and left > _BAR_AFTER):
                self._show(done, total)
        elif now - self._said > _LINE_EVERY and done < total:
            self._said = now
            click.echo(f"{done:,} of {total:,} files, {_spelled(left)} left", file=self._out)
            self._out.flush()

    def _show(self, done: int, total: int) -> None:
        if self._bar is None:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            to = console(stderr=True)
            to.file = self._out
            columns = (TextColumn("migrating"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(
                *columns, TimeRemainingColumn(), TextColumn("left"), console=to, transient=True
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _spelled(seconds: float) -> str:
    """How long, as one would say it."""
    if seconds < 90:
        return f"about {max(round(seconds), 1)} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"
