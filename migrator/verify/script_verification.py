"""Verify a script: record it as it is, migrate it, record it again, compare.

The migrated script first runs compiled, which shows its losses, gradients, weights and files. If
one of these differs, or they don't show enough, it runs again operator by operator, where
everything can be seen, to find the first difference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from migrator.errors import UsageError
from migrator.frameworks import find_framework
from migrator.targets import Target

from .chart import draw
from .choose_interpreter import choose_interpreter
from .folders import workplace
from .golden_code import restored
from .goldens import ScriptGolden, read_golden
from .in_float64 import decide_in_float64
from .interpreters import Interpreter, require
from .migrated_runs import MigratedRuns
from .number_formats import show_notes
from .originals import notes_on, record_original, refuse_migrated
from .own_draws import draw_too
from .recordings import Recording, RecordSettings, importing_once
from .run_options import RunOptions
from .script import Script
from .script_notes import notes_on_golden, notes_on_quick
from .script_result import ScriptResult
from .tolerances import Tolerances
from .upgraded_original import upgraded
from .verify_errors import NothingRecorded, VerifyError
from .verify_progress import Runs

_BISECTED = "--bisect follows the code that the golden was recorded from"
_NOT_BISECTED = (
    "--bisect follows the code as it is now: that of the golden is no commit of this repository"
)
_BEGINNING = 4.0  # estimated seconds until a script begins, if only its golden is there


def verify_against(
    script: Path | Script,
    args: Sequence[str],
    target: Target,
    golden: Path | None,
    settings: RecordSettings,
    options: RunOptions,
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
        framework = find_framework(target.framework)
        has_ranks = framework.follows_operations and options.shard is None
        count = options.devices if has_ranks else None
        found = Script.find(script, args, module, count) if isinstance(script, Path) else script
        found = replace(found, framework=framework, environment=target.host.originals)
        if found.ranks is not None and options.bisect:
            raise VerifyError("--bisect follows one process: leave out --devices")
        if settings.layers and (found.ranks is not None or not framework.follows_operations):
            raise VerifyError("--layers follows the modules of one PyTorch process")
        if options.bisect and not framework.follows_operations:
            raise VerifyError("--bisect follows operations, and Keras compiles its steps")
        # The first runs import everything anyway.
        interpreter = choose_interpreter(target, options, by_import=False)
        with (
            workplace(options.keep, f"{Path(found.entry).stem}-{target.name}") as work,
            importing_once(interpreter.python, found.framework, found.environment) as running,
        ):
            result, verification = _begun(
                result, found, target, interpreter, running, golden, settings, options, work
            )
            result = decide_in_float64(verification, verification.compared_runs(result))
            result = draw_too(verification, result)
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
    settings: RecordSettings,
    options: RunOptions,
    work: Path,
) -> tuple[ScriptResult, MigratedRuns]:
    """The result and the verification once the original is known: run here, or from its golden."""
    known = read_golden(golden) if golden else None
    traced: Script | None = None
    runs, start = Runs(options.console), time.monotonic()
    notes = [*interpreter.notes]
    if known is None:
        refuse_migrated(script, target, options)
        script, first, said = _first_run(
            script, target, interpreter, running, settings, options, work, runs
        )
        notes += said
        device = str(first.machine["device"])
    else:
        _check_layers(known, settings)
        settings = replace(
            known.settings, timeout=settings.timeout, memory=settings.memory,
            quick=settings.quick, layers=settings.layers,
        )  # fmt: skip
        first, device = known.first, known.device
        changed = notes_on_golden(known, script)
        if options.console is not None:  # before the runs, which take minutes, and at the end
            show_notes(changed, options.console)
        notes += changed
        if changed and options.bisect:
            traced = restored(script, known, work / "golden-code", options.keep)
            notes.append(_BISECTED if traced else _NOT_BISECTED)
    notes += notes_on(first, settings)
    ran_once = not first.ranks and script.framework.follows_operations and options.shard is None
    if options.devices is not None and ran_once:
        notes.append(
            f"none of the {script.ranks.count} processes joined a process group: one is compared"
            if script.ranks is not None
            else "it makes no process group: it ran once, and --devices changed nothing"
        )
    notes += notes_on_quick(first, settings)
    in_tf32 = known.tf32 if known else bool(first.machine["tf32"])
    tolerances = replace(result.tolerances, tf32=in_tf32, float64=settings.float64)
    if tolerances.tf32:
        notes.append("the golden's float32 products are in TF32: tolerances are its own")
    beginning = _BEGINNING if known else time.monotonic() - start - first.seconds
    verification = MigratedRuns(
        script, target, interpreter, running, settings, options, work, first,
        known.rounded if known else None, runs, beginning, traced=traced,
    )  # fmt: skip
    return replace(result, golden_device=device, notes=notes, tolerances=tolerances), verification


def _first_run(
    script: Script,
    target: Target,
    interpreter: Interpreter,
    running: Path,
    settings: RecordSettings,
    options: RunOptions,
    work: Path,
    runs: Runs,
) -> tuple[Script, Recording, list[str]]:
    """The original's recording: as it is, or with its old names upgraded, with a note."""

    def record(which: Script, place: Path, how: str = "") -> Recording:
        return record_original(
            which, place, running, settings, runs, options.keep, installer=interpreter.installer,
            how=how,
        )  # fmt: skip

    try:
        return script, record(script, work), []
    except NothingRecorded:
        require(interpreter.python, target)  # it may not even import torch
        raise
    except VerifyError:
        found = upgraded(script, target, work)
        if found is None:
            raise
    newer, note = found
    place = work / "after-upgrades"
    place.mkdir()
    return newer, record(newer, place, ", with its old names upgraded"), [note]


def _check_layers(known: ScriptGolden, settings: RecordSettings) -> None:
    if settings.layers and not known.settings.layers:
        raise VerifyError(
            "the golden was recorded without --layers, or by an earlier version: record it again, "
            "with --layers"
        )
