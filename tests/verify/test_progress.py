"""How many runs there are, and how long the rest takes, where there is no terminal."""

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from migrator.targets import find_target
from migrator.verify.interpreters import Interpreter
from migrator.verify.migrated_runs import MigratedRuns
from migrator.verify.recordings import Recording, RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script import Script
from migrator.verify.verify_progress import Runs, about


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
        "run 2 of 3: one by one (left: about 5 minutes)",
        "run 2 of 3 took 40 s",
        "run 3 of 3: compiled (left: about 10 minutes)",  # as the one before, twice as long
        "run 3 of 3 took 40 s",
    ]


def test_a_quick_run_of_the_original_does_not_make_compiling_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 2.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    runs = Runs(Console(file=io.StringIO()))
    runs.expect({"rounded": 20.0, "compiled": 60.0})
    with runs.run("rounded", "recording t.py, with different rounding"):
        pass
    assert runs.left == 30.0


def test_it_is_said_where_a_time_is_not_known_and_why_there_is_one_more_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 10.0, 70.0, 70.0, 80.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    runs = Runs(Console(file=io.StringIO()))
    runs.expect({"rounded": 10.0, "compiled": None})
    with runs.run("rounded", "rounded"):
        pass
    with runs.run("compiled", "compiled"):
        pass
    runs.expect({"rounded-2": 10.0}, "values differ")
    with runs.run("rounded-2", "rounded, again"):
        pass
    assert capsys.readouterr().err.splitlines() == [
        "2 more runs, about 10 s and the time to compile",
        "run 1 of 2: rounded (left: about 10 s and the time to compile)",
        "run 1 of 2 took 10 s",
        "run 2 of 2: compiled (left: the time to compile)",
        "run 2 of 2 took 60 s",
        "1 more run, about 10 s, because values differ",
        "run 3 of 3: rounded, again (left: about 10 s)",
        "run 3 of 3 took 10 s",
    ]


STEP = (
    "import torch\n\nnet = torch.nn.Linear(3, 1).cuda()\n"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nfor x in data:\n"
    "    loss = net(x.cuda()).mean()\n    loss.backward()\n    optimizer.step()\n"
)


def test_a_compiled_run_is_expected_to_take_twice_the_time_of_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program").mkdir()
    monkeypatch.chdir(tmp_path / "program")
    Path("t.py").write_text(STEP, "utf-8")
    python, work, runs = Path(sys.executable), tmp_path / "work", Runs(None)
    target = find_target("torchax")
    original = Recording(work, [], [], "", "", steps=3, seconds=40.0, randomness={}, machine={})
    verification = MigratedRuns(
        Script.find(Path("t.py"), []), target, Interpreter(python, target), python,
        RecordSettings(),
        RunOptions(), work, original, None, runs, beginning=1.0,
    )  # fmt: skip
    verification.migrate(work / "migrated")
    verification.expect()
    assert runs.coming["compiled"] == 2 * 1 + 2 * 40


@pytest.mark.parametrize(("seconds", "known"), [(5.0, False), (40.0, True)])
def test_a_short_run_that_compiles_as_it_goes_has_no_known_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, known: bool
) -> None:
    """torch_xla compiles in its only run: an ODE's steps took 367 s there, and 11 s originally."""
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text("x = 1\n")
    target, python, runs = find_target("torch_xla"), Path(sys.executable), Runs(None)
    original = Recording(tmp_path, [], [], "", "", 3, seconds, randomness={}, machine={})
    MigratedRuns(
        Script.find(Path("t.py"), []), target, Interpreter(python, target), python,
        RecordSettings(), RunOptions(), tmp_path, original, None, runs, beginning=1.0,
    ).expect()  # fmt: skip
    assert (runs.coming["stepwise"] is not None) == known


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "about 5 s"), (42, "about 40 s"), (59, "about 1 minute")]
)
def test_a_time_is_no_more_exact_than_it_is(seconds: float, text: str) -> None:
    assert about(seconds) == text
