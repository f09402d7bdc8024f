"""The runs of a migrated script: compiled as it will run, or operator by operator."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrator import migrate_paths
from migrator.report.console import show_diff
from migrator.runs.run_report import Report
from migrator.targets import RUNTIME, Target

from .bisection import Bisection, locate
from .bisection_sources import with_sources
from .comparisons import Comparison
from .divergence import compare
from .folders import copy_folder
from .in_target_python import command_line
from .interpreters import Interpreter, require
from .layer_tree import layers_of
from .originals import NO_COMPILER, ROUNDING, record_original, run_name, trace_original
from .recordings import Recording, RecordSettings, record_run
from .run_options import RunOptions
from .run_script import Run
from .script import Script, translated
from .script_device import device_for
from .script_notes import device_option, note_on_free, note_on_growth, reported_at
from .script_result import ScriptResult
from .verify_errors import VerifyError
from .verify_progress import Runs, progress

if TYPE_CHECKING:
    from rich.console import Console

_DRAWS = ("elsewhere", "dropped", "traced")
_COMPILED = ("input", "output", "loss", "metric", "gradients", "weights", "end", "file", "printed")
_STEPWISE = ("start", "buffers", *_COMPILED)
# Multiples of the original's time: until the script begins, and after that.
_STARTING, _STEPPING, _COMPILING = 2.0, 4.0, 2.0
_DIVIDED = f"{RUNTIME}.shard(".encode()
_SHORT = 30.0  # seconds: shorter runs are mostly compiling
# Why there is one more run.
_UNSEEN = "a compiled run does not show all values"
_TO_FIND = "operator by operator it shows where the two programs part"
_MAY_BE_ROUNDING = "values differ by more than rounding has changed in the original so far"


# What a run is called where it begins.
_WORDS = {"stepwise": "operator by operator", "own-draws": "with its own random numbers"}


@dataclass
class MigratedRuns:
    """The migration, and runs of the migrated script, each compared with the original's."""

    script: Script
    target: Target
    interpreter: Interpreter
    python: Path  # starts that interpreter
    settings: RecordSettings
    options: RunOptions
    work: Path
    first: Recording  # of the original
    known: list[Recording] | None  # roundings of a golden
    runs: Runs
    beginning: float  # seconds until the original begins
    report: Report | None = None  # of the migration
    traced: Script | None = None  # the original to bisect, if it isn't the present script
    draws: bool = False  # whether a migrated run wants random numbers of the device
    before: int = 0  # calls that sample, before the first of these
    rounded: list[Recording] = field(default_factory=list)  # of the original
    recorded: dict[str, Recording] = field(default_factory=dict)  # of the migrated script

    def __post_init__(self) -> None:
        self.rounded = self.known or self.rounded
        self.device = device_for(self.target, self.options.devices, self.settings.float64)
        self.args = [translated(argument, self.target) for argument in self.script.args]

    @property
    def console(self) -> Console | None:
        return self.options.console

    def compared_runs(self, result: ScriptResult) -> ScriptResult:
        """The runs whose numbers must be the original's: random ones are drawn on the CPU."""
        notes = [*result.notes, *self.device.notes]
        result = replace(result, device=self.device.label, notes=notes)
        if self.args != [*self.script.args]:
            text = f"the migrated script is given {command_line(self.args)}"
            result = replace(result, notes=[*result.notes, text])
        self.migrate(self.work / "migrated")
        self.expect()
        if not self.rounded:
            self.round_again()
        if self.compiles and not (self.options.bisect or self.settings.layers):
            result, says_all = self.compiled(result)
            if says_all or not self.has_operators:
                return result
            agrees = result.compiled.passed and not result.problems
            self.runs.expect({"stepwise": self.to_step}, _UNSEEN if agrees else _TO_FIND)
            return self.stepwise(result)
        result = self.stepwise(result)
        if not self.compiles or result.problems:
            return result
        if not result.passed:
            text = "the compiled run is left out: operator by operator the numbers differ already"
            return replace(result, notes=[*result.notes, text])
        return self.compiled(result)[0]

    def expect(self) -> None:
        """Estimate the time of the runs from the original's; the factors were measured by
        benchmarks/verify_time.py."""
        own = self.first.seconds
        seconds: dict[str, float | None] = {}
        if self.known is None and self.settings.roundings:
            seconds[run_name(1)] = self.to_round
        if self.compiles:
            compiling = _STARTING * self.beginning + _COMPILING * own
            seconds["compiled"] = None if own < _SHORT else compiling
        if not self.compiles or self.options.bisect or self.settings.layers:
            only_compiles = not self.compiles and own < _SHORT  # what is recorded up to a read
            seconds["stepwise"] = None if only_compiles else self.to_step
        self.runs.expect(seconds)

    @property
    def to_round(self) -> float:
        """Expected seconds of the original with different rounding."""
        return self.beginning + (1 + ROUNDING) * self.first.seconds

    @property
    def to_step(self) -> float:
        """Expected seconds operator by operator."""
        share = min(1.0, (self.stop or math.inf) / max(self.first.steps, 1))
        return _STARTING * self.beginning + _STEPPING * share * self.first.seconds

    @property
    def compiles(self) -> bool:
        """Whether steps are compiled as a whole."""
        return self.target.api.holds_steps or not self.has_operators

    @property
    def has_operators(self) -> bool:
        """Whether it can run operator by operator, too."""
        return self.script.framework.follows_operations

    @property
    def replicas(self) -> Path | None:
        """The file that runs ranks as threads, if a back end has all devices in one process."""
        several = self.script.ranks is not None and not self.device.is_tpu
        return self.target.host.replicas if several else None

    @property
    def stop(self) -> int | None:
        """The number of optimizer steps after which runs end; None: they don't."""
        return self.settings.steps if self.settings.quick else None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that select the device; for a few short steps, XLA optimises less."""
        short = self.settings.quick and self.known is None and self.first.seconds < _SHORT
        environment = self.device.environment
        if short and not self.device.is_tpu:
            environment = self.target.host.in_haste(environment)
        return {**environment, **self.target.host.float64} if self.settings.float64 else environment

    def stepwise(self, result: ScriptResult) -> ScriptResult:
        """Run the script operator by operator, and compare."""
        env = {"TPU_RUNTIME_EAGER": "1"}
        done, run = self.record("stepwise", env, closely=True, stop=self.stop)
        if run.ended and not run.events:
            require(self.interpreter.python, self.target)
        result = self.compared(result, run, "stepwise", _STEPWISE)
        if self.settings.layers:
            inner = self.compare(result, run, "stepwise", ("layer", "layer gradient"))
            layers = layers_of(result.stepwise, inner, self.first, run)
            result = replace(result, layers=layers)
        return self.ended(result, "operator by operator", done, run)

    def compiled(self, result: ScriptResult) -> tuple[ScriptResult, bool]:
        """Run it compiled, and compare. Also returns whether no other run is needed."""
        done, run = self.record("compiled", {}, closely=False, stop=self.stop)
        kinds = _COMPILED if self.has_operators else _STEPWISE
        result = self.compared(result, run, "compiled", kinds)
        result = self.ended(result, "compiled", done, run)
        notes = [f"slower than it could be: {text}" for text in run.in_parts]
        if run.randomness["traced"]:
            notes.append(
                "compiled steps use the back end's random numbers: of the compiled run, only NaN, "
                "Inf, shapes and dtypes are compared"
            )
        says_all = not run.randomness["traced"] and self.says_all(result)
        return replace(result, notes=[*result.notes, *notes]), says_all

    def says_all(self, result: ScriptResult) -> bool:
        """Whether the compiled run agrees, and shows the results of the training or the model."""
        found = result.compiled
        if not found.passed or found.partial or result.problems:
            return False
        seen, wanted = {f.kind for f in found.findings}, {e["kind"] for e in self.first.events}
        gradients = [e["norms"] for e in self.first.events if e["kind"] == "gradients"]
        if any(name.startswith("group") for norms in gradients for name in norms):
            return False  # trained tensors outside of models: their values aren't recorded
        return {"weights", "end"} <= seen if gradients else wanted & {"output"} <= seen

    def round_again(self, why: str = "") -> bool:
        """Run the original again with different rounding; False if the limit is reached.

        ``why``: the reason to announce, of a run that was not expected.
        """
        number = len(self.rounded) + 1
        if self.known is not None or number > self.settings.roundings:
            return False
        if why:
            self.runs.expect({run_name(number): self.to_round}, why)
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
        config = replace(self.options.config, runtime="copy")  # nothing has to be installed
        with progress(self.console, "migrating"):
            report = migrate_paths([source], target=self.target.name, config=config, output=to)
        self.report = report = _of_folder(report, source)
        if self.console is not None and self.options.diff:
            show_diff(report, self.console, companions=False)
        failed = [d.message for path, d in report.failures if path == self.script.file]
        if failed:
            raise VerifyError(f"{self.script.entry} could not be migrated: {failed[0]}")
        divided = any(_DIVIDED in file.result.source for file in report.files)
        if self.options.shard is not None and not divided:
            raise VerifyError(
                f"--shard {self.options.shard} divides no model: none is moved to the device whose "
                "class is the project's, with repeated blocks of layers that are known"
            )

    def record(
        self,
        name: str,
        more: dict[str, str],
        *,
        closely: bool,
        focus: int | None = None,
        stop: int | None = None,
        own_draws: tuple[int, int] | None = None,
    ) -> tuple[Run, Recording]:
        copy = self.work / f"{name}-run"
        copy_folder(self.work / "migrated", copy)
        env = {**self.environment, "TPU_RUNTIME_DEVICE": "tpu", **more,
               "JAX_COMPILATION_CACHE_DIR": str(self.work / "jax_cache")}  # fmt: skip
        how = _WORDS.get(name, name)
        with self.runs.run(name, f"on the {self.device.label}, {how}") as update:
            done, recording = record_run(
                self.python, self.script.entry, self.args, copy,
                self.work / f"{name}-recording", self.settings, own_draws=own_draws,
                framework=self.script.framework, original=self.script.folder,
                start=self.script.start, module=self.script.module, stand_in=False,
                closely=closely, focus=focus, stop=stop, ranks=self.script.ranks,
                replicas=self.replicas, env=env, modules=self.device.modules, on_progress=update,
            )  # fmt: skip
        self.recorded[name] = recording
        counts = recording.randomness
        if not self.draws and any(counts.get(kind) for kind in _DRAWS):
            self.draws, self.before = True, counts["before"]
        return done, recording

    def bisect(self, comparison: Comparison) -> Bisection:
        """The first difference inside of the step in which a comparison failed."""
        first = comparison.first
        if first is None:
            where = "what differs is missing here, or comes with compiling, where no value is seen"
            return Bisection(0, f"operator by operator, everything agrees that both have: {where}")
        if first.kind == "steps":
            return Bisection(first.step, "no single operation decides how often optimizers step")
        found = self.focused(first.step)
        # The previous step causes what a step begins with, and what only shows at the end.
        if first.step and (found.is_earlier or not found.found):
            earlier = self.focused(first.step - 1)
            found = earlier if earlier.found else found
        source = self.work / "source"
        config = self.options.config
        report = self.report or _of_folder(
            migrate_paths([source], target=self.target.name, config=config), source
        )
        results = {f.path.as_posix(): f.result for f in report.files}
        if self.traced is None:
            return with_sources(found, source, self.work / "migrated", results)
        return with_sources(
            found, self.traced.folder, self.work / "migrated", results, source=source
        )

    def focused(self, step: int) -> Bisection:
        try:
            first, rounded = trace_original(
                self.traced or self.script, self.python, self.settings, step, self.work,
                self.options,
            )  # fmt: skip
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
        """Add problems of the run: it ended too early, or never used the device."""
        if recording.devices == ["cpu"]:
            text = "no tensor was on the device: the script, as it was called, chose the CPU"
            text += device_option(self.script)
            others = [problem for problem in result.problems if problem != text]
            result = replace(result, problems=[*others, text])
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
        copies = re.compile(re.escape(f"{self.work}{os.sep}") + r"[\w-]+" + re.escape(os.sep))
        result = replace(
            result, log_tail=copies.sub("", done.tail(20))
        )  # names of the user's files
        if any(f"fails: {recording.ended}" in problem for problem in result.problems):
            return result  # the run before ended so, too
        text = f"the migrated script, run {how}, fails: {recording.ended}"
        if "device type tensor to numpy" in recording.ended:
            text += " (the original raises on a GPU, too: the tensor needs .cpu())"
        said = reported_at(recording.ended, self.report)
        text += said * all(said not in problem for problem in result.problems)
        return replace(result, problems=[*result.problems, text])

    def compared(
        self, result: ScriptResult, run: Recording, name: str, kinds: Sequence[str]
    ) -> ScriptResult:
        """Compare; if rounding may explain the differences, again with further rounded runs, which
        can only increase tolerances."""
        found = self.compare(result, run, name, kinds)
        if name == "compiled" and run.randomness["traced"]:  # its numbers are others
            found = replace(found, findings=[f for f in found.findings if f.is_odd])
        while found.may_be_rounding and self.round_again(_MAY_BE_ROUNDING):
            found = self.compare(result, run, name, kinds)
        for text in filter(None, (note_on_growth(found, self.first), note_on_free(found))):
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
                result.tolerances, compiled=name == "compiled" and self.has_operators,
            )  # fmt: skip


def _of_folder(report: Report, folder: Path) -> Report:
    """The report with paths relative to a folder, without the runtime in the copy that runs: a
    migration delivers it another way."""
    files = [replace(f, path=f.path.relative_to(folder)) for f in report.files]
    return replace(report, files=files, companions={}, output=None, copied=None)
