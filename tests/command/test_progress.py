"""Long runs say how far they are."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from helpers import cli, write_tree

from migrator.cli import progress
from migrator.cli.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def run(clock: Clock, files: int, seconds: float, silent: bool = False) -> None:
    with Progress(silent) as said:
        for done in range(1, files + 1):
            clock.now += seconds
            said(done, files)


def test_a_log_gets_a_line_now_and_then(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    run(clock, files=2000, seconds=0.125)
    assert log.getvalue().splitlines() == [
        "241 of 2,000 files, about 4 min left", "482 of 2,000 files, about 3 min left",
        "723 of 2,000 files, about 3 min left", "964 of 2,000 files, about 2 min left",
        "1,205 of 2,000 files, about 2 min left", "1,446 of 2,000 files, about 69 s left",
        "1,687 of 2,000 files, about 39 s left", "1,928 of 2,000 files, about 9 s left",
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_short_runs_and_quiet_ones_say_nothing(
    stream: type[io.StringIO], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", log := stream())
    run(clock, files=1000, seconds=0.001)
    run(clock, files=1000, seconds=10, silent=True)
    assert log.getvalue() == ""


def test_a_terminal_has_a_bar_that_goes_away(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with Progress(False) as said:
        for done in range(1, 100):
            clock.now += 1
            said(done, 100)
    assert "migrating" in terminal.getvalue() and "/100" in terminal.getvalue()
    assert "left" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is cleared


def test_hours_are_told_as_hours() -> None:
    assert progress._spelled(3 * 3600) == "about 3.0 h"
    assert progress._spelled(0.1) == "about 1 s"


def test_a_run_tells_of_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the reports alone: with every format, and where output goes to a pipe."""
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    root = write_tree(tmp_path, {f"m{n}.py": "import torch\n" for n in range(4)})
    for form in ("console", "json", "github"):
        done = cli(".", "--target", "torchax", "--check", "--format", form, cwd=root)
        assert re.findall(rb"(\d) of 4 files, about 1 s left", done.stderr) == [b"1", b"2", b"3"]
