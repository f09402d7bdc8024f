"""Anybody's script: recorded as it is, migrated, recorded again, compared.

The migrated script runs as it will run, where that is compiled shows its losses, gradients, weights
and what comes of them. If one of these is off, or they do not say all, it runs again operator by
operator, where everything can be seen, and tells where the two part.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.report.console import show_diff
from migrator.run_report import Report
from migrator.targets import Target

from .bisection import Bisection, locate, with_sources
from .chart import draw
from .device import device_for
from .divergence import Comparison, compare
from .errors import NothingRecorded, VerifyError
from .folders import check_size, copy_folder
from .inside import command_line
from .interpreters import Interpreter, require
from .progress import Runs, progress
from .recordings import (
    Recording,
    ScriptGolden,
    Settings,
    digest,
    importing_once,
    keep,
    read,
    record_run,
)
from .result import finite
from .run import Run
from .tolerances import GROWN, Tolerances
from .verification import Options, choose_interpreter, workplace

if TYPE_CHECKING:
    from rich.console import Console

_COMPILED = ("input", "output", "loss", "gradients", "weights", "end", "file", "printed")
_STEPWISE = ("start", "buffers", *_COMPILED)
# Times what the original takes: a rounded run more than that, the others until they begin, and of
# what the script itself takes.
_ROUNDING, _STARTING, _STEPPING, _COMPILING = 0.4, 2.0, 4.0, 2.0
_BEGINNING = 4.0  # seconds until a script begins, of which there is only a golden
_MUCH = 100.0  # times, from where it is said
_GPU = re.compile(r"(--?[\w-]+=)?cuda(:\d+)?")  # as an argument of a program
_NO_COMPILER = {"TORCHDYNAMO_DISABLE": "1"}  # each operation by itself


@dataclass(frozen=True)
class ScriptResult:
    """``compiled``: the run as it will run against the golden, where it is compiled as a whole;
    ``stepwise``: operator by operator."""

    script: str
    target: str
    error: str | None = None  # nothing could be verified
    device: str = ""
    golden_device: str = ""
    stepwise: Comparison = field(default_factory=Comparison)
    compiled: Comparison = field(default_factory=Comparison)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    log_tail: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # of each run, by what it was
    tolerances: Tolerances = field(default_factory=Tolerances)
    quick: bool = False
    kept: Path | None = None
    bisection: Bisection | None = None
    migration: Report | None = None  # what it did

    @property
    def name(self) -> str:
        return self.script

    @property
    def compared(self) -> int:
        return self.stepwise.compared + self.compiled.compared

    @property
    def losses(self) -> list[tuple[float, float]]:
        """Of the golden and of the run."""
        return self.stepwise.losses or self.compiled.losses

    @property
    def partial(self) -> bool:
        """Whether the comparison goes as far as both runs came, and not to the end."""
        return self.stepwise.partial or self.compiled.partial

    @property
    def passed(self) -> bool:
        parts = (self.stepwise, self.compiled)
        wrong = any(p.missing or p.first is not None for p in parts)
        return self.error is None and not self.problems and self.compared > 0 and not wrong

    def to_dict(self) -> dict[str, Any]:
        """For JSON; all times are in seconds. NaN and Inf are text."""
        fields = asdict(replace(self, migration=None))
        del fields["migration"]
        fields["kept"] = str(self.kept) if self.kept else None
        more = {"passed": self.passed, "partial": self.partial, "exit_code": self.exit_code}
        found: dict[str, Any] = finite({**fields, **more})
        return found

    @property
    def exit_code(self) -> int:
        if self.error is not None:
            return 2
        return 0 if self.passed else 1


@dataclass(frozen=True)
class Script:
    """A script and the folder that it is copied with."""

    folder: Path
    entry: str
    args: Sequence[str]
    module: str | None = None  # run as `python -m` does

    @property
    def name(self) -> str:
        """As one names it to Python."""
        return f"-m {self.module}" if self.module else self.entry

    @classmethod
    def find(cls, script: Path, args: Sequence[str], module: bool = False) -> Script:
        """In the current folder, or in its own where it lies elsewhere.

        ``module``: ``script`` is the name of a module there. Raises VerifyError where it is not
        there, or where the folder is too much to copy.
        """
        file, name = script.absolute(), str(script) if module else None
        if name is not None:
            base = Path.cwd().joinpath(*name.split("."))
            file = base / "__main__.py" if base.is_dir() else base.with_name(f"{base.name}.py")
            if not file.is_file():
                raise VerifyError(f"no such module in the current folder (no {file})")
        if not file.is_file():
            raise VerifyError("no such file")
        folder = Path.cwd() if Path.cwd() in file.parents else file.parent
        check_size(folder)
        return cls(folder, file.relative_to(folder).as_posix(), list(args), name)

    def copy(self, to: Path, *without: Path | None) -> Path:
        """A copy to run in, so that nothing of the user's is written over."""
        return copy_folder(self.folder, to, [path for path in without if path is not None])


def record_script(
    script: Path,
    args: Sequence[str],
    output: Path,
    python: Path,
    settings: Settings,
    *,
    module: bool = False,
    console: Console | None = None,
) -> tuple[Recording, list[str]]:
    """Record a GPU script into the golden ``output``; the CPU takes the place of a missing GPU.

    Returns the recording, and what is to be said of it. Raises VerifyError where it fails.
    """
    if output.exists() and any(output.iterdir()) and not (output / "golden.json").is_file():
        raise VerifyError(f"{output} holds other things: choose a new folder")
    found = Script.find(script, args, module)
    with (
        tempfile.TemporaryDirectory(prefix="tpu-migrate-record-") as name,
        importing_once(python) as running,
    ):
        work = Path(name)
        runs, start = Runs(console), time.monotonic()
        first = _recorded(found, work, running, settings, runs, output)
        each = time.monotonic() - start + _ROUNDING * first.seconds
        numbers = range(1, settings.roundings + 1)
        if numbers:
            runs.expect({_name(number): each for number in numbers})
        rounded = [
            _recorded(found, work, running, settings, runs, output, number) for number in numbers
        ]
        keep(
            output,
            first.folder,
            [r.folder for r in rounded],
            settings,
            found.name,
            args,
            digest(found.folder),
        )
    return replace(first, folder=output), said_of(first, settings)


def _recorded(
    script: Script,
    work: Path,
    python: Path,
    settings: Settings,
    runs: Runs,
    without: Path | None,
    rounding: int = 0,
) -> Recording:
    """The original, as it is or rounded otherwise. Raises VerifyError where that shows nothing."""
    name = _name(rounding)
    copy = script.copy(work / name, without)
    text = f"recording {script.entry}"
    if rounding:
        text += f", rounded otherwise{', again' * (rounding > 1)}"
    with runs.run(name, text) as update:
        done, recording = record_run(
            python, script.entry, script.args, copy, work / f"{name}-recording", settings,
            stand_in=True, original=script.folder, module=script.module, rounding=rounding,
            stop=settings.steps if settings.quick else None, on_progress=update,
        )  # fmt: skip
    if rounding:
        return recording
    if recording.ended and not recording.was_stopped:
        raise VerifyError(_fails(script, recording, done.tail(12)))
    if not recording.events and not recording.files and not recording.printed.strip():
        raise VerifyError("the original ran, but computed, printed and wrote nothing to compare")
    return recording


def _name(rounding: int) -> str:
    return f"rounding-{rounding}" if rounding else "original"


def trace_original(
    script: Script, python: Path, settings: Settings, step: int, work: Path, options: Options
) -> tuple[Recording, list[Recording]]:
    """Every operation of one step of the original; and as often as that runs, rounded otherwise.

    Raises VerifyError where nothing could be recorded.
    """
    runs = []
    for rounding in range(settings.roundings + 1):
        name = f"operations-{step}-{f'rounding-{rounding}' if rounding else 'original'}"
        copy = script.copy(work / name, options.keep)
        text = f"every operation of step {step + 1} of the original{', rounded' * bool(rounding)}"
        with progress(options.console, text) as update:
            _, recording = record_run(
                python, script.entry, script.args, copy, work / f"{name}-recording", settings,
                stand_in=True, original=script.folder, module=script.module, closely=False,
                rounding=rounding, focus=step, env=_NO_COMPILER, on_progress=update,
            )  # fmt: skip
        runs.append(recording)
    return runs[0], runs[1:]


def _fails(script: Script, recording: Recording, tail: str) -> str:
    """What a user needs to know where the original does not run; the log is for other cases."""
    ended = recording.ended
    text = f"the original fails: {ended}"
    if "ModuleNotFoundError" in ended:
        module = ended.partition("'")[2].partition(".")[0].rstrip("'")
        own = (script.folder / module).is_dir() or (script.folder / f"{module}.py").is_file()
        return f"{text} (set PYTHONPATH=. if it is the one in this folder)" if own else text
    if "No such file" in ended or "FileNotFoundError" in ended:
        where = f"it runs in a copy of {script.folder}"
        return f"{text} ({where}: start from a folder with all its files)"
    if "relative import" in ended:
        return f"{text} (name it as `python -m` does: -m {_dotted(script.entry)})"
    if "asks for input" in ended or "out of memory" in ended:
        return text
    return f"{text}\n{tail}".strip()


def _dotted(entry: str) -> str:
    return entry.removesuffix(".py").removesuffix("/__main__").replace("/", ".")


def said_of(recording: Recording, settings: Settings) -> list[str]:
    """What a user has to know of a recording."""
    found = []
    if recording.was_stopped:
        found.append(
            f"the original was stopped by --timeout, after {recording.steps} steps: "
            "what was until then is compared"
        )
    if recording.processes:
        found.append(
            f"it starts processes of its own ({recording.processes}): what they compute is not seen"
        )
    found.extend(
        f"it writes outside of its folder, where nothing is a copy: {path}"
        for path in recording.outside
    )
    if recording.not_copied:
        found.append(
            f"imported from where it is installed, so not migrated: {recording.not_copied[0]}"
        )
    if recording.randomness["dropped"] and not settings.dropout:
        found.append("dropout is off in all runs (--dropout draws the same masks in all)")
    if recording.left_out:
        found.append(f"{len(recording.left_out)} tensors are left out (size, or type)")
    return found


def hold(
    script: Path | Script,
    args: Sequence[str],
    target: Target,
    golden: Path | None,
    settings: Settings,
    options: Options,
    tolerances: Tolerances | None = None,
    module: bool = False,
) -> ScriptResult:
    """Migrate a script and hold what it computes on ``target`` against its golden.

    Without ``golden`` the original runs here first, on the CPU in the place of a GPU. ``args`` and
    ``module`` are of a script that is a path. Never raises VerifyError.
    """
    tolerances = tolerances or Tolerances()
    name = str(script) if isinstance(script, Path) else script.name
    result = ScriptResult(name, target.name, tolerances=tolerances, quick=settings.quick)
    without, console = options.keep, options.console
    try:
        found = Script.find(script, args, module) if isinstance(script, Path) else script
        stem = Path(found.entry).stem
        python, install = options.python, options.install
        # The first runs import everything anyway.
        interpreter = choose_interpreter(target, python, install, console, stem, by_import=False)
        with (
            workplace(options.keep, f"{stem}-{target.name}") as work,
            importing_once(interpreter.python) as running,
        ):
            known = read(golden) if golden else None
            runs, start = Runs(console), time.monotonic()
            if known is None:
                try:
                    first = _recorded(found, work, running, settings, runs, without)
                except NothingRecorded:
                    require(interpreter.python, target)  # it may not even import torch
                    raise
                device = str(first.machine["device"])
            else:
                settings = replace(
                    known.settings, timeout=settings.timeout, memory=settings.memory,
                    quick=settings.quick,
                )  # fmt: skip
                first, device = known.first, known.device
                result = replace(result, notes=_of_golden(known, found))
            notes = [*interpreter.notes, *result.notes, *said_of(first, settings)]
            if settings.quick:
                notes.append(_of_quick(first, settings))
            tolerances = replace(tolerances, tf32=bool(first.machine["tf32"]))
            if tolerances.tf32:
                notes.append("the golden's float32 products are in TF32: tolerances are its own")
            result = replace(result, golden_device=device, notes=notes, tolerances=tolerances)
            verification = _Verification(
                found, target, interpreter, running, settings, options, work, first,
                known.rounded if known else None, runs,
            )  # fmt: skip
            beginning = _BEGINNING if known else time.monotonic() - start - first.seconds
            verification.expect(beginning)
            result = verification.run(result)
            if options.bisect and result.stepwise.findings and not result.passed:
                result = replace(result, bisection=verification.bisect(result.stepwise))
            if options.keep is not None:
                notes = [*result.notes, *draw(result, interpreter.python, work)]
                result = replace(result, kept=work, notes=notes)
            return replace(result, migration=verification.report)
    except (VerifyError, UsageError) as error:
        return replace(result, error=str(error))


def _of_quick(first: Recording, settings: Settings) -> str:
    """What was not looked at."""
    if first.shortened or first.steps > settings.steps:
        return (
            f"--quick did not look at what comes after {settings.steps} steps (or calls of a "
            "model, where nothing is trained), such as evaluation and files"
        )
    return "--quick did not look at more roundings"


def translated(argument: str, target: Target) -> str:
    """An argument that names a device, as in `--device cuda`, for the migrated program."""
    found = _GPU.fullmatch(argument)
    return f"{found[1] or ''}{target.words.device}" if found else argument


def _of_golden(golden: ScriptGolden, script: Script) -> list[str]:
    notes = []
    if golden.script != script.name:
        raise VerifyError(f"golden refused: it is of {golden.script}, not of {script.name}")
    if golden.args != list(script.args):
        given = " ".join(golden.args) or "none"
        raise VerifyError(f"golden refused: it was recorded with other arguments ({given})")
    if golden.source != digest(script.folder):
        notes.append("the code has changed since the golden was recorded")
    return notes


@dataclass
class _Verification:
    script: Script
    target: Target
    interpreter: Interpreter
    python: Path  # which stands for that
    settings: Settings
    options: Options
    work: Path
    first: Recording  # of the original
    known: list[Recording] | None  # roundings of a golden
    runs: Runs
    report: Report | None = None  # of the migration

    def __post_init__(self) -> None:
        self.rounded = self.known or []
        self.device = device_for(self.target, self.options.devices)
        self.args = [translated(argument, self.target) for argument in self.script.args]

    @property
    def console(self) -> Console | None:
        return self.options.console

    def run(self, result: ScriptResult) -> ScriptResult:
        result = replace(result, device=self.device.label)
        if self.args != [*self.script.args]:
            text = f"the migrated script is given {command_line(self.args)}"
            result = replace(result, notes=[*result.notes, text])
        self.migrate(self.work / "migrated")
        if not self.rounded:
            self.round_again()
        if self.compiles and not self.options.bisect:
            result, says_all = self.compiled(result)
            return result if says_all else self.stepwise(result)
        result = self.stepwise(result)
        if not self.compiles or result.problems:
            return result
        if not result.passed:
            text = "the compiled run is left out: the operators by themselves differ already"
            return replace(result, notes=[*result.notes, text])
        return self.compiled(result)[0]

    def expect(self, beginning: float) -> None:
        """How long the runs will take, of a script that takes ``beginning`` until it begins: as
        those of benchmarks/verify_time.py did."""
        own, seconds = self.first.seconds, {}
        if self.known is None and self.settings.roundings:
            seconds[_name(1)] = beginning + (1 + _ROUNDING) * own
        if self.compiles:
            seconds["compiled"] = _STARTING * beginning + _COMPILING * own
        if not self.compiles or self.options.bisect:
            share = min(1.0, (self.stop or math.inf) / max(self.first.steps, 1))
            seconds["stepwise"] = _STARTING * beginning + _STEPPING * share * own
        self.runs.expect(seconds)

    @property
    def compiles(self) -> bool:
        """Whether steps are compiled as a whole."""
        return self.target.words.train_step is not None

    @property
    def stop(self) -> int | None:
        """After how many steps of an optimizer runs end."""
        return self.settings.steps if self.settings.quick else None

    def stepwise(self, result: ScriptResult) -> ScriptResult:
        """Operator by operator."""
        env = {"TPU_RUNTIME_EAGER": "1"}
        done, run = self.record("stepwise", env, closely=True, stop=self.stop)
        if run.ended and not run.events:
            require(self.interpreter.python, self.target)
        result = self.compared(result, run, "stepwise", _STEPWISE)
        return self.ended(result, "operator by operator", done, run)

    def compiled(self, result: ScriptResult) -> tuple[ScriptResult, bool]:
        """As it will run; and whether that is right, and says all that there is to be said."""
        done, run = self.record("compiled", {}, closely=False, stop=self.stop)
        result = self.compared(result, run, "compiled", _COMPILED)
        result = self.ended(result, "compiled", done, run)
        notes = [f"slower than it could be: {text}" for text in run.in_parts]
        if run.randomness["traced"]:
            notes.append(
                "compiled steps draw random numbers of the back end's own: of the compiled run, "
                "only NaN, Inf, shapes and dtypes are judged"
            )
            odd = [f for f in result.compiled.findings if f.is_odd]
            result = replace(result, compiled=replace(result.compiled, findings=odd))
        says_all = not run.randomness["traced"] and self.says_all(result)
        return replace(result, notes=[*result.notes, *notes]), says_all

    def says_all(self, result: ScriptResult) -> bool:
        """Whether the compiled run agrees, and has shown what a training, or a model, comes to."""
        found = result.compiled
        if not found.passed or found.partial or result.problems:
            return False
        seen, wanted = {f.kind for f in found.findings}, {e["kind"] for e in self.first.events}
        gradients = [e["norms"] for e in self.first.events if e["kind"] == "gradients"]
        if any(name.startswith("group") for norms in gradients for name in norms):
            return False  # what is trained belongs to no model, whose weights could be read
        return {"weights", "end"} <= seen if gradients else wanted & {"output"} <= seen

    def round_again(self) -> bool:
        """Let the original run once more, rounded otherwise, unless it did as often as it may."""
        number = len(self.rounded) + 1
        if self.known is not None or number > self.settings.roundings:
            return False
        recording = _recorded(
            self.script, self.work, self.python, self.settings, self.runs,
            self.options.keep, number,
        )  # fmt: skip
        self.rounded.append(recording)
        return True

    def migrate(self, to: Path) -> None:
        source = self.script.copy(self.work / "source", self.options.keep)
        if self.options.migrate is not None:
            errors = self.options.migrate(source, self.target, to)
            if errors:
                raise VerifyError("\n".join(errors))
            return
        config = Config(portable=self.options.portable)
        with progress(self.console, "migrating"):
            report = migrate_paths([source], target=self.target.name, config=config, output=to)
        self.report = report = _of_folder(report, source)
        if self.console is not None and self.options.diff:
            show_diff(report, self.console, companions=False)
        entry = self.script.entry
        failed = [d.message for path, d in report.failures if path == Path(entry)]
        if failed:
            raise VerifyError(f"{entry} could not be migrated: {failed[0]}")

    def record(
        self,
        name: str,
        more: dict[str, str],
        *,
        closely: bool,
        focus: int | None = None,
        stop: int | None = None,
    ) -> tuple[Run, Recording]:
        copy = self.work / f"{name}-run"
        copy_folder(self.work / "migrated", copy)
        env = {**self.device.environment, "TPU_RUNTIME_DEVICE": "tpu", **more,
               "JAX_COMPILATION_CACHE_DIR": str(self.work / "jax_cache")}  # fmt: skip
        with self.runs.run(name, f"on the {self.device.label}, {name}") as update:
            return record_run(
                self.python, self.script.entry, self.args, copy,
                self.work / f"{name}-recording", self.settings, original=self.script.folder,
                module=self.script.module, stand_in=False, closely=closely, focus=focus, stop=stop,
                env=env, on_progress=update,
            )  # fmt: skip

    def bisect(self, comparison: Comparison) -> Bisection:
        """Where the runs part inside of the step in which a comparison failed."""
        first = comparison.first
        if first is None:
            where = "what differs is missing here, or comes with compiling, where no value is seen"
            return Bisection(0, f"operator by operator, what both have agrees: {where}")
        found = self.focused(first.step)
        # What is only seen at the end, and what a step begins with, comes from the step before.
        if first.step and (found.is_earlier or not found.found):
            earlier = self.focused(first.step - 1)
            found = earlier if earlier.found else found
        source = self.work / "source"
        config = Config(portable=self.options.portable)
        report = self.report or _of_folder(
            migrate_paths([source], target=self.target.name, config=config), source
        )
        results = {f.path.as_posix(): f.result for f in report.files}
        return with_sources(found, source, self.work / "migrated", results)

    def focused(self, step: int) -> Bisection:
        try:
            first, rounded = trace_original(
                self.script, self.python, self.settings, step, self.work, self.options
            )
            env = {"TPU_RUNTIME_EAGER": "1", **_NO_COMPILER}
            _, run = self.record(f"operations-{step}", env, closely=False, focus=step)
            with progress(self.console, "comparing operations"):
                found = locate(first, rounded, run, self.python, self.work)
        except VerifyError as error:
            return Bisection(step, str(error))
        for which, recording in (("original", first), ("migrated script", run)):
            if recording.ended and not found.found:
                text = f"the {which}, run operation by operation: {recording.ended}"
                found = replace(found, problem=text)
            if recording.left_out:
                text = f"{len(recording.left_out)} tensors of the {which} were not kept (size)"
                found = replace(found, differences=[*found.differences, text])
        return replace(found, step=step)

    def ended(
        self, result: ScriptResult, how: str, done: Any, recording: Recording
    ) -> ScriptResult:
        """What is to be said of a run that ended too early, or was nowhere on the device."""
        if recording.devices == ["cpu"]:
            text = "no tensor was on the device: the script, as it was called, chose the CPU"
            result = replace(result, problems=[*result.problems, text])
        if not recording.ended:
            return result
        if recording.was_stopped:
            text = (
                f"the migrated script, run {how}, was stopped by --timeout: "
                "compared as far as both came"
            )
            return replace(result, notes=[*result.notes, text])
        text = f"the migrated script, run {how}, fails: {recording.ended}"
        return replace(result, problems=[*result.problems, text], log_tail=done.tail(20))

    def compared(
        self, result: ScriptResult, run: Recording, name: str, kinds: Sequence[str]
    ) -> ScriptResult:
        """What differs by more than one rounded run explains is held against more of them: each
        can only allow more."""
        found = self.compare(result, run, name, kinds)
        while found.may_be_rounding and self.round_again():
            found = self.compare(result, run, name, kinds)
        if text := _of_growth(found, self.first):
            result = replace(result, notes=list(dict.fromkeys([*result.notes, text])))
        seconds = {**result.seconds, name: run.seconds, "original": self.first.seconds}
        if name == "stepwise":
            return replace(result, stepwise=found, seconds=seconds)
        return replace(result, compiled=found, seconds=seconds)

    def compare(
        self, result: ScriptResult, run: Recording, name: str, kinds: Sequence[str]
    ) -> Comparison:
        with progress(self.console, "comparing"):
            return compare(
                self.first, self.rounded, run, self.python, self.work, kinds,
                result.tolerances, compiled=name == "compiled",
            )  # fmt: skip


def _of_folder(report: Report, folder: Path) -> Report:
    """With the names that files have in a folder that is a copy."""
    files = [replace(f, path=f.path.relative_to(folder)) for f in report.files]
    return replace(report, files=files, output=None, copied=None)


def _of_growth(comparison: Comparison, golden: Recording) -> str:
    """What is to be said where rounding grows; "" where it does not."""
    growth = comparison.growth / GROWN
    if growth < _MUCH:
        return ""
    grown = f"rounding alone grows {growth:,.0f}-fold over {golden.steps} steps here"
    if comparison.lost:
        return (
            f"{grown}: weights at the end and files say nothing and are left out; run fewer steps"
        )
    return f"{grown}: later steps are compared that much less closely"
