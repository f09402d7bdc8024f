"""Runs of the original script: as it is, with different rounding, and operation by operator."""

from __future__ import annotations

import ast
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.pipeline.rewrite import companions
from migrator.targets import RUNTIME, Target

from . import gpu_steps
from .environments import uv_command
from .golden_code import commit_of, how_to_verify_original
from .goldens import digest, keep
from .in_target_python import command_line
from .interpreters import pip
from .missing_packages import missing_packages
from .recordings import Recording, RecordSettings, importing_once, record_run
from .run_options import RunOptions
from .verify_errors import VerifyError
from .verify_progress import Runs, progress

if TYPE_CHECKING:
    from rich.console import Console
from .script import Script

ROUNDING = 0.4  # the extra time of a rounding run, as a share of the script's own
NO_COMPILER = {"TORCHDYNAMO_DISABLE": "1"}  # one operation at a time


def record_script(
    script: Path,
    args: Sequence[str],
    output: Path,
    python: Path,
    settings: RecordSettings,
    *,
    module: bool = False,
    devices: int | None = None,
    console: Console | None = None,
) -> tuple[Recording, list[str]]:
    """Record a GPU script into the golden ``output``; the CPU takes the place of a missing GPU.

    ``devices``: how many ranks it has, if it has any.

    Returns the recording, and notes on it. Raises VerifyError if that fails.
    """
    if output.exists() and any(output.iterdir()) and not (output / "golden.json").is_file():
        raise VerifyError(f"{output} is not empty: choose a new folder")
    found = Script.find(script, args, module, devices)
    with (
        tempfile.TemporaryDirectory(prefix="tpu-migrate-record-") as name,
        importing_once(python, found.framework, found.environment) as running,
    ):
        work = Path(name)
        runs, start = Runs(console), time.monotonic()
        first = record_original(
            found, work, running, settings, runs, output,
            installer=pip(python, "install", has_pip=uv_command() is None),
        )  # fmt: skip
        each = time.monotonic() - start + ROUNDING * first.seconds
        numbers = range(1, settings.roundings + 1)
        if numbers:
            runs.expect({run_name(number): each for number in numbers})
        rounded = [
            record_original(found, work, running, settings, runs, output, number)
            for number in numbers
        ]
        keep(
            output,
            first.folder,
            [r.folder for r in rounded],
            settings,
            found.name,
            args,
            digest(found.folder),
            commit_of(found.folder),
        )
        notes = [*notes_on(first, settings), *_measured(found, first, python, work, output)]
    return replace(first, folder=output), notes


def _measured(
    script: Script, first: Recording, python: Path, work: Path, output: Path
) -> Iterator[str]:
    """Measure steps on a GPU; a note says what they take."""
    (output / gpu_steps.FILE).unlink(missing_ok=True)  # of an earlier recording
    if not is_on_gpu(first) or script.ranks is not None or not first.steps:
        return
    copy = script.copy(work / "measured", output)
    found = gpu_steps.measure(
        script, python, copy, output, 2 * first.seconds + 60, script.environment
    )
    if found is not None:
        yield str(found)


def is_on_gpu(recording: Recording) -> bool:
    """Whether its machine has a GPU, and no CPU stood in for one."""
    return not str(recording.machine.get("device", "CPU")).startswith("CPU")


def record_original(
    script: Script,
    work: Path,
    python: Path,
    settings: RecordSettings,
    runs: Runs,
    without: Path | None,
    rounding: int = 0,
    installer: Sequence[str] = (),
    own_draws: tuple[int, int] | None = None,
    how: str = "",
) -> Recording:
    """Record the original, as it is or with different rounding. Raises VerifyError if nothing was
    recorded.

    ``installer``: the command that installs packages, without their names. ``own_draws``: for a few
    steps with its own random numbers, as `record_run` has it. ``how``: what is said of the run.
    """
    name = run_name(rounding) if own_draws is None else f"seed-{own_draws[0]}"
    copy = script.copy(work / name, without)
    text = f"the original, {script.entry}{how}"
    if rounding:
        text += f", with different rounding{', again' * (rounding > 1)}"
    if own_draws is not None:
        text += f", with its own random numbers, seed + {own_draws[0]}"
    with runs.run(name, text) as update:
        done, recording = record_run(
            python, script.entry, script.args, copy, work / f"{name}-recording", settings,
            own_draws=own_draws,
            framework=script.framework, stand_in=True, original=script.folder,
            start=script.start, module=script.module, rounding=rounding, ranks=script.ranks,
            stop=settings.steps if settings.quick or own_draws is not None else None,
            env=script.environment,
            on_progress=update,
        )  # fmt: skip
    if rounding or own_draws is not None:
        return recording
    if recording.ended and not recording.was_stopped:
        raise VerifyError(_fails(script, python, installer, recording, done.tail(12)))
    if script.ranks is not None and 0 < recording.ranks < script.ranks.count:
        ranks = f"{recording.ranks} of {script.ranks.count} ranks"
        raise VerifyError(f"the original: only {ranks} joined a process group")
    if not recording.events and not recording.files and not recording.printed.strip():
        raise VerifyError("the original ran, but computed, printed and wrote nothing to compare")
    return recording


def refuse_migrated(script: Script, target: Target, options: RunOptions) -> None:
    """Raises VerifyError for a script that is migrated already: it would be compared with itself.

    Portable programs are none: where there is no TPU, they run as the original does.
    """
    file = script.folder / script.file
    source = file.read_bytes()
    if options.portable or target.api.device_names or f"{RUNTIME}.device(".encode() in source:
        return
    if not _is_migrated(source):
        return
    how = how_to_verify_original(file, _is_migrated, options.asked or [script.entry])
    raise VerifyError(
        "it is migrated already, and would be compared with itself. Verify the original"
        + (f", which git has:{how}" if how else ", from before the migration")
    )


def _is_migrated(source: bytes) -> bool:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return bool(companions(ast.parse(source)))
    return False


def run_name(rounding: int) -> str:
    return f"rounding-{rounding}" if rounding else "original"


def trace_original(
    script: Script,
    python: Path,
    settings: RecordSettings,
    step: int,
    work: Path,
    options: RunOptions,
) -> tuple[Recording, list[Recording]]:
    """Record all operations of one step of the original, and again for each different rounding.

    Raises VerifyError if nothing could be recorded.
    """
    runs = []
    for rounding in range(settings.roundings + 1):
        name = f"operations-{step}-{f'rounding-{rounding}' if rounding else 'original'}"
        copy = script.copy(work / name, options.keep)
        text = f"every operation of step {step + 1} of the original{', rounded' * bool(rounding)}"
        with progress(options.console, text) as update:
            _, recording = record_run(
                python, script.entry, script.args, copy, work / f"{name}-recording", settings,
                framework=script.framework, stand_in=True, original=script.folder,
                start=script.start, module=script.module, closely=False, rounding=rounding,
                focus=step, env={**script.environment, **NO_COMPILER}, on_progress=update,
            )  # fmt: skip
        runs.append(recording)
    return runs[0], runs[1:]


def _fails(
    script: Script, python: Path, installer: Sequence[str], recording: Recording, tail: str
) -> str:
    """An explanation for an original that doesn't run; without one, the log has to do."""
    ended = recording.ended
    text = f"the original fails: {ended}"
    if "ModuleNotFoundError" in ended:
        module, _, inner = ended.partition("'")[2].partition("'")[0].partition(".")
        start = script.folder / script.start
        own = (start / module).is_dir() or (start / f"{module}.py").is_file()
        if own:
            return f"{text} (set PYTHONPATH=. if it is the one in this folder)"
        if inner:  # otherwise Python would have named the package
            version = recording.machine["versions"].get(module, "that is installed")
            return f"{text} ({module} {version} has no such module: this is for another version)"
        packages = missing_packages(script, python, module)
        what = "what is missing" if packages[1:] else "it"
        install = command_line([*installer, *packages])
        return f"{text} (install {what}: {install}, or the package that has it)"
    if "in the NumPy 2.0 release" in ended or "module 'numpy' has no attribute" in ended:
        return f"{text} (ruff check --select NPY --fix rewrites what NumPy has removed)"
    if "No such file" in ended or "FileNotFoundError" in ended:
        where = f"it runs in a copy of {script.folder}"
        if re.search(r"(?<![\w./])\.\./", ended):
            return f"{text} ({where}: name what is outside of that by an absolute path)"
        return f"{text} ({where}: start from a folder with all its files)"
    if ended == "exit code 2" and "usage: " in tail:
        return f"{text} (its own arguments go behind --, as in `-- --epochs 1`)\n{tail}"
    if "relative import" in ended:
        return f"{text} (name it as `python -m` does: -m {_dotted(script.entry)})"
    if "asks for input" in ended or "out of memory" in ended:
        return text
    return f"{text}\n{tail}".strip()


def _dotted(entry: str) -> str:
    return entry.removesuffix(".py").removesuffix("/__main__").replace("/", ".")


def notes_on(recording: Recording, settings: RecordSettings) -> list[str]:
    """Notes on a recording for the user."""
    found = []
    if recording.was_stopped:
        found.append(
            f"the original was stopped by --timeout, after {recording.steps} steps: "
            "what came before is compared"
        )
    if recording.devices == ["cpu"] and is_on_gpu(recording):
        found.append("no tensor was on the GPU: the script, as it was called, chose the CPU")
    if recording.ranks:
        found.append(
            f"each of {recording.ranks} ranks is compared with the same rank" if recording.ranks > 1
            else "a world of one rank: nothing is exchanged with another"
        )  # fmt: skip
    found.extend(
        f"in the original, a stand-in for {name} computes the same on the CPU"
        for name in recording.stood_in
    )
    if recording.processes:
        found.append(
            f"it starts processes of its own ({recording.processes}): what they compute is not seen"
        )
    found.extend(
        f"it writes outside of its folder, so not to a copy: {path}" for path in recording.outside
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
