"""Migrates an app, runs it on its target, and compares its numbers with the golden.

A script without a golden is migrated and run, and its programs are compiled for a TPU.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrator.errors import UsageError
from migrator.files.user_folders import meant_instead
from migrator.targets import Target, find_target

from . import known_programs, product_precision, runtime_report, tpu
from .apps import App, Golden, find_app, load_golden, read_times, source_digest
from .chips import topology
from .choose_interpreter import choose_interpreter, with_tpu_compiler
from .folders import check_size, workplace
from .in_target_python import ask
from .interpreters import Interpreter, without_libtpu
from .measures import measure
from .migrated_copy import write_migrated_copy
from .repeated_programs import repeated
from .run_options import RunOptions
from .run_script import Run, run
from .safetensors_files import Damaged, compare_outputs
from .script_device import Device, device_for
from .verify_errors import VerifyError
from .verify_progress import progress
from .verify_result import Figure, Measure, OutputResult, StepTime, VerifyResult

if TYPE_CHECKING:
    pass

_COMPARE_SECONDS = 600.0
# Time limits for compiling dumped programs for an absent TPU. A large step takes a minute, some
# operators take longer: as many are compiled as the time allows.
_COMPILE_SECONDS = 60.0
_STEPS_SECONDS = 1800.0
_SCRIPT_SECONDS = 600.0  # for any script, which may train for days


def verify_app(name: str, target: str, **how: Any) -> VerifyResult:
    """Verify the app ``name`` of the checkout on ``target``; never raises VerifyError.

    ``how``: see RunOptions.
    """
    options = RunOptions(**how)
    try:
        app = find_app(name, target)
        golden = load_golden(app) if app.outputs is not None else None  # otherwise it is recorded
        return _verify(app, golden, find_target(target), options)
    except (VerifyError, UsageError) as error:
        return VerifyResult(app=name, target=target, error=str(error), python=options.python)


def verify_script(script: Path, args: Sequence[str], target: str, **how: Any) -> VerifyResult:
    """Migrate and run a user's script, and compile its programs for a TPU.

    It runs in a migrated copy of the current folder, or of its own folder if that is elsewhere. It
    is stopped after some minutes: its steps are compiled by then. Never raises VerifyError.
    """
    options = RunOptions(**how)
    try:
        app = _as_app(script, args, options.keep)
        return _verify(app, None, find_target(target), options)
    except (VerifyError, UsageError) as error:
        return VerifyResult(str(script), target, error=str(error), python=options.python)


def folder_of(script: Path) -> Path:
    """What is copied for a script's run."""
    file = script.absolute()
    return Path.cwd() if Path.cwd() in file.parents else file.parent


def _as_app(script: Path, args: Sequence[str], keep: Path | None) -> App:
    file = script.absolute()
    if not file.is_file():
        raise VerifyError(f"no such file{meant_instead(script)}")
    folder = folder_of(script)
    if keep is not None and folder in (keep.absolute(), *keep.absolute().parents):
        raise VerifyError(f"--keep {keep} lies inside the folder that is copied: choose another")
    check_size(folder)
    return App(
        name=script.stem,
        folder=folder,
        entry=str(file.relative_to(folder)),
        args=list(args),
        outputs=None,
        times=None,
        tolerances={},
        timeout=_SCRIPT_SECONDS,
        precision="the script's own",
    )


def _verify(app: App, golden: Golden | None, target: Target, options: RunOptions) -> VerifyResult:
    interpreter = choose_interpreter(target, options, requires=app.requires)
    with workplace(options.keep, f"{app.name}-{target.name}") as folder:
        work = _VerifyWork(app, golden, interpreter, folder, options)
        result = work.verify(options.timeout or app.timeout)
        return replace(result, kept=folder if options.keep else None)


def compared(
    app: App, golden: Golden, outputs: Path, python: Path, folder: Path
) -> list[OutputResult]:
    """The outputs of a run compared with the golden. Raises Damaged and VerifyError."""
    stated = app.tolerances
    tolerances = {name: asdict(value) for name, value in stated.items()}
    rows = compare_outputs(golden.outputs, outputs, tolerances, python, folder)
    return [OutputResult(name, stated.get(name), **row) for name, row in rows.items()]


class _VerifyWork:
    """One verification in one folder."""

    def __init__(
        self,
        app: App,
        golden: Golden | None,
        interpreter: Interpreter,
        folder: Path,
        options: RunOptions,
    ) -> None:
        self.app = app
        self.golden = golden
        self.interpreter = interpreter
        self.folder = folder
        self.options = options
        self.console = options.console
        self.copy = folder / "migrated"
        self.programs = folder / "programs"
        self.for_tpu = folder / "programs_for_tpu"
        self.report = folder / "report.json"
        self.left_out: list[tpu.DumpedProgram] = []  # since they ran once

    def verify(self, timeout: float) -> VerifyResult:
        self._migrate()
        device = device_for(self.interpreter.target, self.options.devices)
        done = self._run(device, timeout)
        result = VerifyResult(
            app=self.app.name,
            target=self.interpreter.target.name,
            device=device.label,
            python=self.interpreter.python,
            versions=self.interpreter.versions,
            notes=[
                *self.interpreter.notes,
                *device.notes,
                *self._no_libtpu(device),
                *self._stale(),
            ],
            golden_device=self.golden.device if self.golden else None,
            seconds=done.seconds,
        )
        if self.golden is None:
            return self._judge_script(result, done)
        if failure := done.failure():
            return replace(
                result, problems=[f"the migrated script {failure}"], log_tail=done.tail()
            )
        return self._judge(result, device, done, self.golden)

    def _no_libtpu(self, device: Device) -> list[str]:
        found = without_libtpu(self.interpreter, os.environ) if device.is_tpu else None
        return [str(found)] if found is not None else []

    def _migrate(self) -> None:
        how = self.options
        divides = self.interpreter.target.offers("shard") and not how.portable
        shard = how.shard or (self.app.shard if divides else "replicated")
        migrate = how.migrate or partial(
            write_migrated_copy,
            config=replace(how.config, shard=shard, unsafe=how.unsafe or self.app.unsafe),
            console=self.console,
            diff=how.diff,
            script=None if self.golden else self.app.entry,
            kept=how.keep is not None,
        )
        with progress(self.console, f"migrating {self.app.name}"):
            errors = migrate(self.app.folder, self.interpreter.target.name, self.copy)
        if errors:
            raise VerifyError("\n".join([f"{self.app.name} could not be migrated:", *errors]))

    @property
    def _for_devices(self) -> list[str]:
        """Arguments that make the app use several devices."""
        return [*self.app.devices_args] if (self.options.devices or 1) > 1 else []

    def _stale(self) -> list[str]:
        if not self.golden or self.golden.source in (None, source_digest(self.app.folder)):
            return []
        return ["the app has changed since its golden was captured: python golden/capture.py"]

    def _run(self, device: Device, timeout: float) -> Run:
        # The copy includes files of the source folder: an old result must not be mistaken for a new
        # one.
        for path in (self.app.outputs, self.app.times):
            if path is not None:
                (self.copy / path).unlink(missing_ok=True)
        # A first run compiles: no program may come from an earlier run's cache.
        env = {
            **device.environment,
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "jax_cache"),
            "TPU_RUNTIME_DEVICE": "tpu",  # for portable programs, which could choose
            "TPU_RUNTIME_REPORT": str(self.report),
        }
        env |= {} if device.modules is None else {"PYTHONPATH": str(device.modules)}
        env |= {"TPU_RUNTIME_PROGRAMS": str(self.for_tpu)} if self.options.compile_for else {}
        env |= {} if self.options.compute else {"TPU_RUNTIME_COMPUTE": "off"}
        env |= {"TPU_RUNTIME_RECOMPUTE": "on"} if self.options.recompute else {}
        with progress(self.console, f"running {self.app.name} on the {device.label}") as update:
            return run(
                [str(self.interpreter.python), self.app.entry, *self.app.args, *self._for_devices],
                cwd=self.copy,
                log=self.folder / "run.log",
                timeout=timeout,
                env=product_precision.collect(env, self.programs, self.interpreter.target),
                on_progress=update,
            )

    def _judge(
        self, result: VerifyResult, device: Device, done: Run, golden: Golden
    ) -> VerifyResult:
        outputs, problems = self._compare(golden)
        notes = [*result.notes, *(self._sheet(golden) if outputs else ())]
        report, found = self._programs()
        ran = runtime_report.read_report(self.report)
        if self.app.precision == "highest":
            if report.offenders:
                problems.append("float32 is not kept: products below the highest precision")
            elif not report.programs and not device.is_tpu:
                problems.append(f"no program was compiled: the script did not use {result.target}")
        times, figures = self._times(golden)
        measures, missed = self._measured()
        return replace(
            result,
            notes=notes,
            outputs=outputs,
            problems=[*problems, *(found.problems() if found else []), *missed],
            times=times,
            figures=figures,
            measures=measures,
            precision=report if self.app.precision == "highest" else None,
            tpu=found,
            compiled=ran.text,
            in_parts=ran.in_parts,
            log_tail=None if outputs else done.tail(),
        )

    def _judge_script(self, result: VerifyResult, done: Run) -> VerifyResult:
        """The programs that a script without a golden compiled, also if it was stopped or
        failed."""
        report, found = self._programs()
        ran = runtime_report.read_report(self.report)
        failure, problems, notes = done.failure(), [], [*result.notes]
        if self.left_out:
            names = ", ".join(program.name for program in self.left_out)
            notes.append(f"ran once, and not compiled without --all-programs: {names}")
        if failure and done.returncode is None:
            notes.append(f"the migrated script was {failure}; what it compiled until then is shown")
        elif failure:
            problems.append(f"the migrated script {failure}")
        if not report.programs:
            problems.append(f"no program was compiled: the script did not use {result.target}")
        return replace(
            result,
            notes=notes,
            problems=[*problems, *(found.problems() if found else [])],
            precision=report,
            tpu=found,
            compiled=ran.text,
            in_parts=ran.in_parts,
            log_tail=done.tail() if problems else None,
        )

    def _compare(self, golden: Golden) -> tuple[list[OutputResult], list[str]]:
        assert self.app.outputs is not None
        outputs = self.copy / self.app.outputs
        if not outputs.is_file():
            return [], [f"the migrated script wrote no {self.app.outputs}"]
        try:
            with progress(self.console, "comparing"):
                return compared(self.app, golden, outputs, self.interpreter.python, self.folder), []
        except Damaged as error:
            return [], [str(error)]

    def _sheet(self, golden: Golden) -> list[str]:
        """Draw the frames of both runs if the folder is kept; returns a note."""
        if not self.app.frames or self.options.keep is None or self.app.outputs is None:
            return []
        picture = self.folder / "contact_sheet.png"
        answer = ask(
            self.interpreter.python,
            "contact_sheet.py",
            [*map(str, (golden.outputs, self.copy / self.app.outputs, picture)), *self.app.frames],
            timeout=_COMPARE_SECONDS,
            cwd=self.folder,
        )
        if answer["error"]:
            return [f"no contact sheet: {answer['error']}"]
        return [f"the golden's frames above this run's: {picture}"]

    def _programs(self) -> tuple[product_precision.PrecisionReport, tpu.TpuReport | None]:
        """The dumped programs: read, and compiled for a TPU; a report of that if it was wanted."""
        report, wish = product_precision.check(self.programs), self.options.compile_for
        programs = tpu.programs_of(self.programs, self.for_tpu)
        if wish is not None:
            steps = [program for program in programs if program.is_step]
            if self.options.read_steps is not None and not self.options.all_programs:
                ran = runtime_report.read_report(self.report)
                steps, self.left_out = repeated(steps, ran.runs)
            others = [program for program in programs if not program.is_step]
            found = self._compile(steps, wish, _STEPS_SECONDS)
            if self.options.read_steps is not None:
                ran = runtime_report.read_report(self.report)
                self.options.read_steps(found, ran, self.copy, (self.for_tpu, self.programs))
                return report, found
            found = found.joined(self._compile(others, wish, _COMPILE_SECONDS))
            return tpu.judge(report, found), found
        programs = [program for program in programs if program.is_float32]
        able = self.interpreter.target.host.has_tpu_compiler
        if not programs or report.offenders or self.app.precision != "highest" or not able:
            return report, None
        return tpu.judge(report, self._compile(programs, tpu.DEFAULT, _COMPILE_SECONDS)), None

    def _compile(
        self, programs: list[tpu.DumpedProgram], compile_for: str, seconds: float
    ) -> tpu.TpuReport:
        def compiler(paths: list[Path]) -> dict[str, Any]:
            text = f"compiling {len(paths)} programs for a TPU that is not here"
            with progress(self.console, text):
                return ask(
                    with_tpu_compiler(self.interpreter),
                    "compile_for_tpu.py",
                    [topology(compile_for), str(seconds), *map(str, paths)],
                    timeout=2 * seconds,
                    cwd=self.folder,
                )

        if self.options.read_steps is None:
            return tpu.compile_programs(programs, compile_for, compiler)
        known = known_programs.with_known(
            compiler, topology(compile_for), self.interpreter.versions, self.folder
        )
        return tpu.compile_programs(programs, compile_for, known)

    def _times(self, golden: Golden) -> tuple[list[StepTime], list[Figure]]:
        steps, figures = read_times(self.copy / self.app.times) if self.app.times else ({}, {})
        times = []
        for name in {**steps, **golden.steps}:
            first, later = steps.get(name, (None, None))
            golden_first, golden_later = golden.steps.get(name, (None, None))
            times.append(StepTime(name, first, later, golden_first, golden_later))
        names = {**figures, **golden.figures}
        return times, [Figure(name, figures.get(name), golden.figures.get(name)) for name in names]

    def _measured(self) -> tuple[list[Measure], list[str]]:
        if not self.options.measure:
            return [], []
        if not self.app.measures:
            return [], [f"{self.app.name} names no measurement for {self.interpreter.target.name}"]
        with progress(self.console, "measuring") as update:
            return measure(self.app.measures, self.interpreter.python, self.folder, update)
