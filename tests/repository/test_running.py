"""How the tests are run: jobs that hold every file once, and the tiers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from helpers import REPOSITORY

TESTS = REPOSITORY / "tests"
MANY = """\
import pytest

def test_first(): ...

@pytest.mark.thorough
@pytest.mark.parametrize("number", range(200))
def test_alone(number): ...

@pytest.mark.thorough("a folder")
@pytest.mark.parametrize("number", range(20))
def test_together(number): ...
"""


@pytest.fixture
def program() -> ModuleType:
    """tests/run.py, as a module."""
    spec = importlib.util.spec_from_file_location("run_the_tests", TESTS / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_file_is_in_one_job_for_each_target_that_it_needs(program: ModuleType) -> None:
    pythons = {*program.BACK_ENDS}
    jobs = program.plan([""])
    runs = Counter((job.target, file) for job in jobs for file in job.files)
    assert set(runs.values()) == {1}
    for path in TESTS.rglob("test_*.py"):
        name = path.relative_to(REPOSITORY).as_posix()
        targets = {target for target, file in runs if file == name}
        if "test_target_" in name or path.parent.name == "runtime":
            assert targets == pythons, name
        elif (own := path.parent.name.removeprefix("for_")) in pythons:
            assert targets == {own}, name
        elif (room := path.parent.name) in program.APART:  # by --keras and the like
            assert targets == set(), name
            alone = program.plan((room,))
            own = {job.target for job in alone if name in job.files}
            assert {*program.APART[room]} == own and room in program.OPTIONS.values(), name
        else:
            assert targets == {""}, name
    assert len({(job.name, job.target) for job in jobs}) == len(jobs)
    assert [job.seconds for job in jobs] == sorted((job.seconds for job in jobs), reverse=True)


def test_durations_are_of_files_that_are_there(program: ModuleType) -> None:
    for name in program.known():
        path, _, target = name.partition(" ")
        assert (REPOSITORY / path).is_file(), f"{path}: python3 tests/run.py --all --record"
        assert target in program.targets_of(REPOSITORY / path)


def test_a_python_without_ensurepip_is_told_in_one_line(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(program.shutil, "which", lambda name: None)
    monkeypatch.setattr(program.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"has no ensurepip.*install uv, or"):
        program.find_uv()


def tier(folder: Path, *options: str) -> tuple[int, str]:
    """How many tests ran, and what was printed."""
    shutil.copy(TESTS / "conftest.py", folder / "conftest.py")
    (folder / "test_many.py").write_text(MANY)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    return int(passed[1]), done.stdout


def test_a_twentieth_of_the_second_tier_runs_and_is_named(tmp_path: Path) -> None:
    assert tier(tmp_path, "--all")[0] == 221
    together = set()
    for sample in "abcdefgh":
        passed, output = tier(tmp_path, "--sample", sample)
        chosen = set(re.findall(r"^  test_many.py::(\S+)", output, re.MULTILINE))
        assert passed == 1 + len(chosen) and f"{len(chosen)} of 220" in output
        assert 2 <= len({name for name in chosen if "alone" in name}) <= 22
        together.add(len({name for name in chosen if "together" in name}))
    assert together <= {0, 20}
    assert tier(tmp_path, "--sample", "a", "test_many.py::test_together")[0] == 20


def test_what_was_chosen_is_shown_once_for_all_jobs(
    program: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    _, output = tier(tmp_path, "--sample", "a")
    output = output.replace("  test_many.py", "  tests/test_many.py")
    for name in ("one--torchax.txt", "one--torch_xla.txt"):
        (tmp_path / name).write_text(output)
    program.show_second_tier()
    shown = capsys.readouterr().out.split("\n")
    chosen = [line for line in output.splitlines() if line.startswith("  tests/")]
    assert shown == ["", f"== {len(chosen)} of the second tier, chosen by --sample a", *chosen, ""]
