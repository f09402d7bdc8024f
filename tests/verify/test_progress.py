"""How many runs there are, and how long the rest takes, where there is no terminal."""

import io
import time

import pytest
from rich.console import Console

from migrator.verify.progress import Runs, about


def test_a_log_has_a_line_as_each_run_begins_and_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 20.0, 20.0, 60.0, 60.0, 100.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    runs = Runs(Console(file=io.StringIO()))
    with runs.run("original", "recording t.py"):
        pass
    runs.expect({"stepwise": 20.0, "compiled": 300.0})
    with runs.run("stepwise", "one by one"):
        pass
    with runs.run("compiled", "compiled"):
        pass
    out, lines = capsys.readouterr()
    assert out == "" and lines.splitlines() == [
        "run 1: recording t.py",
        "run 1 took 20 s",
        "2 more runs, about 5 minutes",
        "run 2 of 3: one by one, about 5 minutes left",
        "run 2 of 3 took 40 s",
        "run 3 of 3: compiled, about 10 minutes left",  # as the one before, twice as long
        "run 3 of 3 took 40 s",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "about 5 s"), (42, "about 40 s"), (59, "about 1 minute")]
)
def test_a_time_is_no_more_exact_than_it_is(seconds: float, text: str) -> None:
    assert about(seconds) == text
