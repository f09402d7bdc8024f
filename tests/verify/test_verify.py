"""The whole of verify with an interpreter that has nothing: everything up to the comparison."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from migrator.verify import environments, folders, interpreters, verification
from migrator.verify.app_table import summary, verdict
from migrator.verify.apps import find_app
from migrator.verify.command import verify_command
from migrator.verify.measures import measure
from migrator.verify.table import show
from migrator.verify.verify_arguments import VerifyArguments
from migrator.verify.verify_result import (
    Figure,
    Measure,
    OutputResult,
    StepTime,
    Tolerance,
    VerifyResult,
)

from .support import APP_TOML, GOLDEN, Checkout, copy_as_migration, fake_interpreter, writing

posix = pytest.mark.skipif(sys.platform == "win32", reason="fake interpreters are sh scripts")


@pytest.fixture(autouse=True)
def no_migration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(verification, "write_migrated_copy", copy_as_migration)
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "cache"))


def verify(python: Path, **options: object) -> VerifyResult:
    return verification.verify_app("tiny", "torchax", python=python, **options)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(verify_command, [str(argument) for argument in arguments])


@posix
class TestRuns:
    def test_a_script_that_fails_is_shown_with_its_log(
        self, checkout: Checkout, python: Path
    ) -> None:
        checkout.script("print('step 1')\n1 / 0")
        done = command("tiny", "--python", python)
        assert done.exit_code == 1
        assert "the migrated script failed with exit code 1" in done.output
        assert "step 1" in done.output and "ZeroDivisionError" in done.output
        assert "FAIL: tiny on the CPU back end of torchax" in done.output

    def test_a_script_that_hangs_is_stopped(self, checkout: Checkout, python: Path) -> None:
        checkout.script("import time; time.sleep(60)")
        done = command("tiny", "--python", python, "--timeout", 0.5)
        assert done.exit_code == 1
        assert "stopped after" in done.output

    def test_a_script_that_writes_nothing_fails(self, checkout: Checkout, python: Path) -> None:
        result = verify(python)
        assert result.exit_code == 1
        assert result.problems[0].startswith("the migrated script wrote no out")

    def test_an_old_result_in_the_source_is_not_taken_for_a_new_one(
        self, checkout: Checkout, python: Path
    ) -> None:
        (checkout.app / "out").mkdir()
        old = checkout.app / "out" / "outputs.safetensors"
        old.write_bytes((checkout.golden / "outputs.safetensors").read_bytes())
        assert verify(python).problems[0].startswith("the migrated script wrote no out")
        assert old.exists()

    def test_the_run_is_held_to_the_cpu_and_to_its_own_cache(
        self, checkout: Checkout, python: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("JAX_PLATFORMS", raising=False)
        checkout.script(
            "import os; print(os.environ['JAX_PLATFORMS'], os.environ['JAX_COMPILATION_CACHE_DIR'])"
        )
        tail = verify(python).log_tail
        assert tail is not None and tail.startswith("cpu ") and "jax_cache" in tail

    def test_a_tpu_without_libtpu_is_said_beside_the_failure(
        self, checkout: Checkout, python: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkout.script("raise SystemExit('no TPU')")
        assert not any("libtpu" in note for note in verify(python).notes)  # the CPU needs none
        monkeypatch.setenv("JAX_PLATFORMS", "tpu")
        monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
        result = verify(python)
        assert result.device == "TPU" and result.exit_code == 1
        assert any(
            "libtpu is not installed" in note and "libtpu==" in note for note in result.notes
        )

    def test_what_was_made_is_kept_and_never_overwritten(
        self, checkout: Checkout, python: Path, tmp_path: Path
    ) -> None:
        checkout.script(writing(GOLDEN))
        keep = tmp_path / "kept"
        command("tiny", "--python", python, "--keep", keep)
        assert (keep / "tiny-torchax" / "migrated" / "out" / "outputs.safetensors").exists()
        assert (keep / "tiny-torchax" / "run.log").exists()
        assert not (checkout.app / "out").exists()
        again = command("tiny", "--python", python, "--keep", keep)
        assert again.exit_code == 2
        assert "is there already" in again.output

    def test_an_app_that_cannot_be_migrated_is_an_error(
        self, checkout: Checkout, python: Path
    ) -> None:
        result = verify(python, migrate=lambda *_: ["main.py:1: invalid syntax"])
        assert result.exit_code == 2
        assert result.error == "tiny could not be migrated:\nmain.py:1: invalid syntax"

    def test_json_is_all_that_goes_to_standard_output(
        self, checkout: Checkout, python: Path
    ) -> None:
        done = command("tiny", "--python", python, "--json")
        found = json.loads(done.stdout)
        assert found["exit_code"] == done.exit_code == 1
        assert found["passed"] is False
        assert found["device"] == "CPU back end of torchax"
        assert found["golden_device"] == "NVIDIA H200"

    def test_all_apps_give_the_worst_exit_code(self, checkout: Checkout, python: Path) -> None:
        done = command("--all", "--python", python, "--json")
        assert [result["app"] for result in json.loads(done.stdout)] == ["tiny"]
        assert done.exit_code == 1

    def test_without_an_environment_the_message_has_the_commands(
        self, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", str(fake_interpreter(tmp_path / "bare", {})))
        done = command("tiny", "--target", "torch_xla")
        assert done.exit_code == 2
        assert "tpu-migrate verify --install tiny --target torch_xla\n" in done.output
        assert "about 8 GB" in done.output

    def test_install_announces_then_makes_the_environment(
        self, checkout: Checkout, tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(interpreters, "find", lambda target, by_import: None)
        monkeypatch.setattr(environments, "install", lambda target: python)
        done = command("tiny", "--install")
        assert "Installing torch==2.9.0" in done.output
        assert done.exit_code == 1  # it ran

    @pytest.mark.parametrize("answer", [True, False])
    def test_on_a_terminal_the_user_is_asked(
        self, checkout: Checkout, python: Path, monkeypatch: pytest.MonkeyPatch, answer: bool
    ) -> None:
        made: list[str] = []
        monkeypatch.setattr(interpreters, "find", lambda target, by_import: None)
        monkeypatch.setattr(environments, "install", lambda to: made.append(to.name) or python)
        monkeypatch.setattr(sys, "stdin", Terminal(f"{'y' if answer else 'n'}\n"))
        console = Console(file=Terminal(), force_terminal=True)
        found = verification.verify_app("tiny", "torchax", console=console)
        assert made == (["torchax"] if answer else [])
        assert found.exit_code == (1 if answer else 2)


@posix
class TestScripts:
    """Anybody's script: no app, no golden."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        project = tmp_path / "project"
        (project / "tools").mkdir(parents=True)
        (project / "data.txt").write_text("of the user")
        monkeypatch.chdir(project)
        return project

    def script(self, folder: Path, text: str) -> str:
        (folder / "tools" / "train.py").write_text(text, encoding="utf-8")
        return str(Path("tools") / "train.py")

    def test_it_runs_in_a_copy_of_the_current_folder_with_its_arguments(
        self, folder: Path, python: Path, tmp_path: Path
    ) -> None:
        text = "import sys; open('data.txt', 'a').write(' ' + sys.argv[2])"
        script = self.script(folder, text)
        options = ("--compile-for", "v6e-1", "--python", python, "--keep", tmp_path / "kept")
        done = command(script, *options, "--", "--epochs", 3)
        assert done.exit_code == 1
        assert "no program was compiled: the script did not use torchax" in done.output
        assert (folder / "data.txt").read_text() == "of the user"
        copy = tmp_path / "kept" / "train-torchax" / "migrated"
        assert (copy / "data.txt").read_text() == "of the user 3"

    def test_one_that_trains_for_days_is_stopped_and_that_is_no_failure(
        self, folder: Path, python: Path
    ) -> None:
        script = self.script(folder, "import time; time.sleep(60)")
        options = ("--compile-for", "v6e-1", "--python", python, "--timeout", 0.5)
        done = command(script, *options)
        assert "note: the migrated script was stopped after" in done.output
        assert "the migrated script failed" not in done.output

    def test_one_that_fails_is_shown_with_its_log(self, folder: Path, python: Path) -> None:
        script = self.script(folder, "1 / 0")
        done = command(script, "--compile-for", "v6e-1", "--python", python)
        assert done.exit_code == 1
        assert "the migrated script failed with exit code 1" in done.output
        assert "ZeroDivisionError" in done.output

    def test_a_folder_that_is_too_large_is_not_copied(
        self, folder: Path, python: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folders, "COPIED_BYTES", 3)
        script = Path(self.script(folder, ""))
        for name in (script, script.with_suffix("")):  # a program needs no suffix
            script.rename(name)
            done = command(str(name), "--compile-for", "v6e-1", "--python", python)
            assert done.exit_code == 2 and "start from a smaller folder" in done.output

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("tiny", "--golden", "here"), "--golden goes with a SCRIPT.py"),
            (("tiny", "--quick"), "--quick compares the first steps of a SCRIPT.py"),
            (("tools/none.py", "--compile-for", "v6e-1"), "no such file"),
            (("tools/train.py", "--compile-for", "v9z"), "'v9z' is not one of 'v6e-1', "),
            (("tiny", "--", "--epochs", "3"), "go with a SCRIPT.py"),
            (("tools/train.py", "--shard", "tp"), "--shard tp divides models: give --devices N"),
            (("tools/train.py", "--compile-for", "v6e-1", "--keep", "here"), "choose another"),
        ],
    )
    def test_wrong_usage_is_one_line(
        self, folder: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        self.script(folder, "")
        done = command(*arguments)
        assert done.exit_code == 2
        (line,) = [line for line in done.output.splitlines() if message in line]
        assert len(line) < 140


def test_few_steps_are_held_to_as_many_roundings_as_all() -> None:
    """A difference of a `--quick` run is no fault because one rounding happened to move less."""
    asked = SimpleNamespace(
        steps=3, roundings=3, dropout=False, timeout=None, memory=None, quick=True, layers=False,
        float64=False,
    )  # fmt: skip
    assert VerifyArguments.settings(asked).roundings == 3  # type: ignore[arg-type]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_wrong_usage_is_exit_code_2(checkout: Checkout) -> None:
    assert command().exit_code == 2
    assert command("tiny", "--all").exit_code == 2
    assert command("tiny", "--target", "mps").exit_code == 2
    unknown = command("nobody")
    assert unknown.exit_code == 2
    assert "there are: tiny" in unknown.output


def result(**changes: object) -> VerifyResult:
    passed = OutputResult(
        "y", Tolerance(atol=1e-6), shape=[2, 2], dtype="float32", elements=4, ratio=0.25,
        max_abs=2.5e-7, mean_abs=1e-8, max_ulp=3,
    )  # fmt: skip
    fields: dict[str, object] = {
        "app": "tiny",
        "target": "torchax",
        "device": "CPU back end of torchax",
        "outputs": [passed],
        "times": [StepTime("work", 2.0, 0.25, 0.5, 0.01)],
        "golden_device": "NVIDIA H200",
        "seconds": 5.0,
        **changes,
    }
    return VerifyResult(**fields)  # type: ignore[arg-type]


def printed(found: VerifyResult) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    show(found, console)
    return console.export_text()


def test_the_table_says_what_was_compared_and_where_it_ran() -> None:
    text = printed(result())
    for part in ("2.5e-07", "1e-06", "pass", "NVIDIA H200", "2.0000"):
        assert part in text
    assert "PASS: tiny on the CPU back end of torchax: 1 output agrees with the golden" in text


def test_figures_and_measurements_are_shown_beside_what_they_are_held_against() -> None:
    figures = [Figure("PSNR, dB", 22.4, 22.38)]
    measures = [
        Measure("step", "1.25 times", "at most 1.1", False),
        Measure("HBM", "12.0 GiB", "12 GB more"),
    ]
    text = printed(result(figures=figures, measures=measures))
    for part in ("PSNR, dB", "22.38", "1.25 times", "at most 1.1", "FAIL", "12 GB more"):
        assert part in text


MEASURING = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--python")
parser.add_argument("--json", type=pathlib.Path)
args = parser.parse_args()
print("measuring by", args.python)
{}
args.json.write_text(json.dumps([{{"what": "step", "here": "1 ms", "passed": {}}}]))
"""


@pytest.mark.parametrize(
    ("before", "passed", "problems"),
    [
        ("", "True", []),
        ("", "False", ["1 of 1 measurements are not met"]),
        ("raise SystemExit('no libtpu')", "True", ["one.py failed with exit code 1: no libtpu"]),
    ],
)
def test_what_an_app_measures(
    before: str, passed: str, problems: list[str], checkout: Checkout, tmp_path: Path
) -> None:
    (checkout.root / "one.py").write_text(MEASURING.format(before, passed))
    checkout.toml(APP_TOML + '[measures]\ntorchax = ["one.py"]\n')
    found, wrong = measure(find_app("tiny", "torchax").measures, Path("python"), tmp_path)
    assert wrong == problems
    assert len(found) == (not before)
    assert "measuring by python" in (tmp_path / "one.log").read_text()
    assert find_app("tiny", "torch_xla").measures == []


def test_exit_codes() -> None:
    assert result().exit_code == 0
    assert result(problems=["x"]).exit_code == 1
    assert result(error="x").exit_code == 2
    assert result(outputs=[]).exit_code == 1
    nothing = OutputResult("y", Tolerance(), shape=[0], elements=0, ratio=0.0)
    assert result(outputs=[nothing]).exit_code == 1
    assert verdict(result(outputs=[nothing])).endswith("no output was compared")
    wrong = OutputResult("y", shape=[1], reason="1 NaN or Inf")
    assert result(outputs=[wrong]).exit_code == 1
    assert "y: 1 NaN or Inf" in printed(result(outputs=[wrong]))


def test_tolerances_read_well() -> None:
    assert str(Tolerance()) == "exact"
    assert str(Tolerance(atol=1e-6, rtol=1e-5)) == "1e-06 + 1e-05·|x|"
    assert str(Tolerance(max_mismatch=0.001)) == "exact, but 0.001 of all"


def test_the_summary_has_one_line_for_each_result() -> None:
    rows = [
        OutputResult(name, Tolerance(1e-6), elements=2, max_abs=off, ratio=t)
        for name, off, t in (("y", 3e-6, 0.25), ("z", 5e-7, 0.5))
    ]
    times = [StepTime("a", 2.0, 0.25), StepTime("b", 1.0, 0.5), StepTime("c", None, None)]
    good = VerifyResult(
        "tiny", "torchax", device="CPU", outputs=rows, times=times, golden_device="NVIDIA H100"
    )
    exact = OutputResult("y", Tolerance(), reason="2 of 2", elements=2)
    wrong = VerifyResult("tiny", "torch_xla", device="CPU", outputs=[exact], golden_device="CPU")
    none = VerifyResult("other", "torchax", error="no environment")
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(summary([good, wrong, none]))
    lines = [line.split() for line in console.export_text().splitlines() if " │ " in line]
    cells = [[word for word in line if word != "│"] for line in lines]
    assert cells == [
        [
            "tiny",
            "torchax",
            "CPU",
            "2",
            "5e-07",
            "50",
            "%",
            "3.0000",
            "0.7500",
            "NVIDIA",
            "H100",
            "PASS",
        ],
        ["tiny", "torch_xla", "CPU", "1", "-", "∞", "-", "-", "CPU", "FAIL"],
        ["other", "torchax", "-", "-", "-", "-", "-", "-", "-", "ERROR"],
    ]
