"""A script runs in a subprocess that leaves nothing behind."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from migrator.verify.run_script import Run, run
from migrator.verify.runtime_report import HostRead, RuntimeReport, read_report

posix = pytest.mark.skipif(sys.platform == "win32", reason="process groups")


def python(folder: Path, script: str, timeout: float = 60, **options: object) -> Run:
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    return run(
        [sys.executable, str(path)], cwd=folder, log=folder / "log", timeout=timeout, **options
    )


def survivors(folder: Path) -> list[int]:
    """Those of the noted processes that still run half a second after they were ended."""
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 0.5
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that init has yet to reap does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_success_with_its_output_in_the_log(tmp_path: Path) -> None:
    done = python(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)")
    assert done.failure() is None
    assert done.tail().split() == ["out", "err"]


def test_a_failure_shows_the_end_of_its_log(tmp_path: Path) -> None:
    done = python(tmp_path, "for i in range(99): print(i)\nraise SystemExit(7)")
    assert done.failure() == "failed with exit code 7"
    assert done.tail(3).split() == ["96", "97", "98"]


def test_a_script_that_asks_for_input_gets_none(tmp_path: Path) -> None:
    done = python(tmp_path, "input('name? ')", timeout=30)
    assert done.returncode == 1 and "EOFError" in done.tail()


@posix
def test_the_signal_that_ended_it_is_named(tmp_path: Path) -> None:
    done = python(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert done.failure() == "ended by SIGKILL (out of memory?)"


STUBBORN = """\
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"])
open("pids", "w").write(f"{os.getpid()} {child.pid}")
print("working", flush=True)
"""


@posix
def test_the_time_limit_ends_it_with_its_children(tmp_path: Path) -> None:
    start = time.monotonic()
    done = python(tmp_path, STUBBORN + "time.sleep(60)", timeout=1.5)
    assert time.monotonic() - start < 10
    assert done.returncode is None
    assert done.failure() == "stopped after 2 s (--timeout)"
    assert not survivors(tmp_path)
    assert "working" in done.tail()


@posix
def test_children_do_not_outlive_a_script_that_ended(tmp_path: Path) -> None:
    done = python(tmp_path, STUBBORN)
    assert done.failure() is None
    assert not survivors(tmp_path)


@posix
def test_ending_the_migrator_ends_the_script(tmp_path: Path) -> None:
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(KeyboardInterrupt):
        python(tmp_path, STUBBORN + "time.sleep(60)")
    assert not survivors(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_progress_tells_the_last_line(tmp_path: Path) -> None:
    seen: list[str] = []
    python(
        tmp_path,
        "import time\nprint('epoch 1')\ntime.sleep(0.8)",
        on_progress=lambda seconds, line: seen.append(line),
    )
    assert "epoch 1" in seen


def test_the_migrators_own_python_settings_stay_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/migrator")
    monkeypatch.setenv("UV_INDEX_URL", "https://index.example")
    done = python(
        tmp_path, "import os; print(os.environ.get('PYTHONPATH'), os.environ['A'])", env={"A": "1"}
    )
    assert done.tail() == "None 1"


def test_the_report_of_a_run_has_those_of_its_ranks(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert read_report(path) == RuntimeReport()
    step = {"name": "step", "calls": 3, "programs": 1, "why_eager": "it writes a file"}
    of_ranks = {"text": "9 programs\nstep: 3 calls", "functions": [step, {**step, "calls": 0}]}
    path.write_text(json.dumps({"text": "0 programs", "functions": []}))
    for rank in range(2):
        (tmp_path / f"report.rank{rank}.json").write_text(json.dumps(of_ranks))
    lines = [f"rank{rank}: {line}" for rank in range(2) for line in of_ranks["text"].splitlines()]
    assert read_report(path) == RuntimeReport("\n".join(["0 programs", *lines]), ["step"])


def test_the_report_says_what_compiles_again_and_where_the_host_waits(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    functions = [
        {"name": name, "calls": 9, "programs": programs, "why_eager": ""}
        for name, programs in (("Net", 7), ("Adam.step()", 2))
    ]
    reads = [{"line": "train.py:9: loss.item()", "file": "/w/train.py", "times": 3, "bytes": 12}]
    path.write_text(json.dumps({"text": "", "functions": functions, "reads": reads}))
    found = read_report(path)
    assert found.recompiled == ["Net: 7 programs in 9 calls"]
    assert found.reads == [HostRead(**reads[0])]
