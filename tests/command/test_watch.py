"""--watch: what changes is migrated again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import pytest
from helpers import cli, committed, one_line

from tests.command.scripts import GPU, TO

SOURCE = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"


class Lines:
    """What a process prints, line by line; one that prints nothing more is an error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)

    def next(self) -> str:
        return self._lines.get(timeout=60)


def _heed_ctrl_c() -> None:
    """What a shell starts in the background ignores it, and so do all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def watching(root: Path, *options: str) -> Iterator[Lines]:
    """The command, once it has looked at everything; Ctrl-C ends it."""
    command = [sys.executable, "-m", "migrator", ".", *TO, "--watch", *options]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=_heed_ctrl_c,
    )  # fmt: skip
    try:
        lines = Lines(process)
        while "Ctrl-C ends it" not in lines.next():
            pass
        yield lines
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 1)
        assert lines.next() == "\n"  # no traceback
    finally:
        process.kill()


def touch(path: Path, text: str, lines: Lines) -> str:
    """Write a file, and the line that is said of it."""
    path.write_text(text)
    return lines.next().strip()[len("00:00:00  ") :]


@pytest.mark.skipif(sys.platform == "win32", reason="no process is sent a Ctrl-C there")
def test_what_changes_is_looked_at(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": SOURCE, "b.py": SOURCE})
    with watching(root, "--check") as lines:
        text = SOURCE + "\n\ndef g(x):\n    return x.cuda(), torch.cuda.Stream()\n"
        assert touch(root / "a.py", text, lines) == ("a.py: 2 constructs to rewrite, 1 reported")
        (root / "notes.md").write_text("nothing of ours")
        assert touch(root / "a.py", "x = 1\n", lines) == "a.py: nothing to do"
        assert "never closed" in touch(root / "b.py", SOURCE + "f(", lines)
    assert (root / "a.py").read_text() == "x = 1\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no process is sent a Ctrl-C there")
def test_what_it_writes_is_no_change(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "x = 1\n"})
    with watching(root, "--allow-dirty") as lines:
        assert touch(root / "a.py", SOURCE, lines) == "a.py: 1 construct rewritten"
        assert 'x.to("jax")' in (root / "a.py").read_text()
        assert touch(root / "b.py", SOURCE, lines) == "b.py: 1 construct rewritten"


@pytest.mark.skipif(sys.platform == "win32", reason="no process is sent a Ctrl-C there")
def test_what_may_not_be_overwritten_is_said(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": "x = 1\n"})
    with watching(root) as lines:
        said = touch(root / "a.py", SOURCE, lines)
        assert said.startswith("error: a.py") and "--allow-dirty" in said
    assert (root / "a.py").read_text() == SOURCE


@pytest.mark.parametrize("option", [("-o", "out"), ("--hook",), ("--format", "json")])
def test_what_it_does_not_go_with(tmp_path: Path, option: tuple[str, ...]) -> None:
    root = committed(tmp_path, {"a.py": GPU})
    run = cli(".", *TO, "--watch", *option, cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "--watch", option[0])
