"""Verify a script: recorded as it is, migrated, recorded again, compared.

The migrated script runs as it will run, where that is compiled shows its losses, gradients, weights
and what comes of them. If one of these is off, or they do not say all, it runs again operator by
operator, where everything can be seen, and tells where the two part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.report.console import show_diff
from migrator.run_report import Report
from migrator.targets import Target

from .bisection import Bisection, locate
from .bisection_sources import with_sources
from .chart import draw
from .choosing import choose_interpreter
from .device import device_for
from .divergence import compare
from .errors import NothingRecorded, VerifyError
from .findings import Comparison
from .folders import copy_folder, workplace
from .goldens import read
from .inside import command_line
from .interpreters import Interpreter, require
from .progress import Runs, progress
from .recordings import Recording, Settings, importing_once, record_run
from .run import Run
from .tolerances import Tolerances
from .verification import Options

if TYPE_CHECKING:
    from rich.console import Console
from .originals import NO_COMPILER, ROUNDING, notes_on, record_original, run_name, trace_original
from .script import Script, translated
from .script_notes import note_on_growth, note_on_quick, notes_on_golden
from .script_result import ScriptResult

_COMPILED = ("input", "output", "loss", "gradients", "weights", "end", "file", "printed")
_STEPWISE = ("start", "buffers", *_COMPILED)
# Times what the original takes: until the other runs begin, and of what the script itself takes.
_STARTING, _STEPPING, _COMPILING = 2.0, 4.0, 2.0
_SHORT = 30.0  # seconds: of a run that is shorter, most is compiling
_BEGINNING = 4.0  # seconds until a script begins, of which there is only a golden


def verify_against(
    script: Path | Script,
    args: Sequence[str],
    target: Target,
    golden: Path | None,
    settings: Settings,
    options: Options,
    tolerances: Tolerances | None = None,
    module: bool = False,
) -> ScriptResult:
    """Migrate a script, and verify what it computes on ``target`` against its golden.

    Without ``golden`` the original runs here first, on the CPU in the place of a GPU. ``args`` and
    ``module`` are of a script that is a path. Never raises VerifyError.
    """
    name = str(script) if isinstance(script, Path) else script.name
    result = ScriptResult(
        name, target.name, tolerances=tolerances or Tolerances(), quick=settings.quick
    )
    try:
        found = (
            Script.find(script, args, module, options.devices)
            if isinstance(script, Path)
            else script
        )
        if found.ranks is not None and options.bisect:
            raise VerifyError("--bisect follows one process: leave out --devices")
        # The first runs import everything anyway.
        interpreter = choose_interpreter(
            target, options.python, options.install, options.console, Path(found.entry).stem,
            by_import=False,
        )  # fmt: skip
        with (
            workplace(options.keep, f"{Path(found.entry).stem}-{target.name}") as work,
            importing_once(interpreter.python) as running,
        ):
            result, verification = _begun(
                result, found, target, interpreter, running, golden, settings, options, work
            )
            result = verification.run(result)
            if options.bisect and result.stepwise.findings and not result.passed:
                result = replace(result, bisection=verification.bisect(result.stepwise))
            if options.keep is not None:
                notes = [*result.notes, *draw(result, interpreter.python, work)]
                result = replace(result, kept=work, notes=notes)
            return replace(result, migration=verification.report)
    except (VerifyError, UsageError) as error:
        return replace(result, error=str(error))


def _begun(
    result: ScriptResult,
    script: Script,
    target: Target,
    interpreter: Interpreter,
    running: Path,
    golden: Path | None,
    settings: Settings,
    options: Options,
    work: Path,
) -> tuple[ScriptResult, _Verification]:
    """The result and the verification once the original is known: run here, or from its golden."""
    known = read(golden) if golden else None
    runs, start = Runs(options.console), time.monotonic()
    notes = [*interpreter.notes]
    if known is None:
        try:
            first = record_original(script, work, running, settings, runs, options.keep)
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
        notes += notes_on_golden(known, script)
    notes += notes_on(first, settings)
    if settings.quick:
        notes.append(note_on_quick(first, settings))
    tolerances = replace(result.tolerances, tf32=bool(first.machine["tf32"]))
    if tolerances.tf32:
        notes.append("the golden's float32 products are in TF32: tolerances are its own")
    verification = _Verification(
        script, target, interpreter, running, settings, options, work, first,
        known.rounded if known else None, runs,
    )  # fmt: skip
    verification.expect(_BEGINNING if known else time.monotonic() - start - first.seconds)
    return replace(result, golden_device=device, notes=notes, tolerances=tolerances), verification


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
            seconds[run_name(1)] = beginning + (1 + ROUNDING) * own
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
    def replicas(self) -> Path | None:
        """What runs ranks as threads, where a back end has all devices in one process."""
        several = self.script.ranks is not None and not self.device.is_tpu
        return self.target.host.replicas if several else None

    @property
    def stop(self) -> int | None:
        """After how many steps of an optimizer runs end."""
        return self.settings.steps if self.settings.quick else None

    @property
    def environment(self) -> dict[str, str]:
        """What holds a run to the device; a few short steps are not worth much compiling."""
        short = self.settings.quick and self.known is None and self.first.seconds < _SHORT
        if short and not self.device.is_tpu:
            return self.target.host.in_haste(self.device.environment)
        return self.device.environment

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
        recording = record_original(
            self.script, self.work, self.python, self.settings, self.runs,
            self.options.keep, number,
        )  # fmt: skip
        self.rounded.append(recording)
        return True

    def migrate(self, to: Path) -> None:
        source = self.script.copy(self.work / "source", self.options.keep)
        if self.options.migrate is not None:
            errors = self.options.migrate(source, self.target.name, to)
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
        env = {**self.environment, "TPU_RUNTIME_DEVICE": "tpu", **more,
               "JAX_COMPILATION_CACHE_DIR": str(self.work / "jax_cache")}  # fmt: skip
        with self.runs.run(name, f"on the {self.device.label}, {name}") as update:
            return record_run(
                self.python, self.script.entry, self.args, copy,
                self.work / f"{name}-recording", self.settings, original=self.script.folder,
                module=self.script.module, stand_in=False, closely=closely, focus=focus, stop=stop,
                ranks=self.script.ranks, replicas=self.replicas, env=env, on_progress=update,
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
            env = {"TPU_RUNTIME_EAGER": "1", **NO_COMPILER}
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
        if recording.ranks != self.first.ranks:
            text = f"{recording.ranks} ranks joined a process group, {self.first.ranks} did before"
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
        if text := note_on_growth(found, self.first):
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
