"""Recordings of scripts: made by the recorder in a subprocess."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from migrator.files.discover import project_root
from migrator.files.reading import read_or_none
from migrator.files.user_folders import resolved
from migrator.frameworks.framework import Framework
from migrator.runs.delivery import FOLDER
from migrator.targets import RUNTIME
from migrator.targets.wheel import is_wheel

from .in_target_python import child_environment
from .run_script import Run, run
from .safetensors_files import header
from .script_ranks import RankRecording, StartedRanks, merged
from .verify_errors import NothingRecorded, VerifyError
from .warm import warm

TENSORS, OUTPUT = "tensors.safetensors", "output.txt"
EVENTS = "events.json"  # of one run
RANKS = "ranks"  # … of each rank, in a folder of its number
STOPPED = "stopped"  # the message of a run that the time limit ended
_RECORDED = (
    "seed",
    "steps",
    "dropout",
    "limit",
    "memory",
    "layers",
    "float64",
)  # settings that the recorder reads
_OWN = Path(__file__).resolve().parents[2]  # the folder of this package
_GRACE = 30.0  # seconds for writing down the recording


@dataclass(frozen=True)
class RecordSettings:
    """How to record.

    ``steps``: the number of calls and steps whose tensors are kept; losses and gradient norms are
    always kept. ``roundings``: the number of further runs with different rounding. ``dropout``: its
    masks are drawn like other random numbers; if False, it is off. ``limit``: bytes of tensors.
    ``timeout``: in seconds. ``memory``: bytes that a run may allocate. ``quick``: all runs end
    after ``steps`` steps of an optimizer, or calls of a model if nothing is trained. ``layers``:
    the outputs of modules inside of models are kept, too. ``float64``: all runs compute in float64.
    """

    seed: int = 0
    steps: int = 5
    roundings: int = 3
    dropout: bool = False
    limit: int = 2 * 2**30
    timeout: float = 600.0
    memory: int | None = None
    quick: bool = False
    layers: bool = False
    float64: bool = False


@dataclass(frozen=True)
class Recording:
    """The recording of one run; ``events`` as `recorder/watch_training.py` writes them."""

    folder: Path
    events: list[dict[str, Any]]
    files: list[dict[str, Any]]
    printed: str
    ended: str  # why it ended too early; "" if it didn't
    steps: int
    seconds: float
    randomness: dict[str, int]
    machine: dict[str, Any]
    left_out: list[str] = field(default_factory=list)
    processes: int = 0  # started processes that were not recorded
    ranks: int = 0  # and those that were
    outside: list[str] = field(default_factory=list)  # files that it wrote there
    not_copied: list[str] = field(default_factory=list)  # modules imported from the copied folder
    devices: list[str] = field(default_factory=list)  # devices that held tensors
    stood_in: list[str] = field(default_factory=list)  # GPU-only parts of torch that had a stand-in
    shortened: bool = False  # it was ended after the requested number of steps
    in_parts: list[str] = field(default_factory=list)  # reasons for steps in parts
    halves: list[float] = field(default_factory=list)  # numbers read from 16-bit floating tensors
    tensors: str = TENSORS

    @property
    def was_stopped(self) -> bool:
        """Whether the time limit ended it."""
        return self.ended == STOPPED

    @property
    def path(self) -> Path:
        return self.folder / self.tensors


def importing_once(
    python: Path, framework: Framework, environment: Mapping[str, str]
) -> AbstractContextManager[Path]:
    """``python`` for several runs in an environment, without repeating slow imports."""
    if not framework.recorder_imports:
        return nullcontext(python)
    return warm(python, framework.recorder_imports, child_environment(environment))


@contextmanager
def recorder(framework: Framework) -> Iterator[Path]:
    """The recorder's folder, as files. Raises VerifyError for a framework without one."""
    if not framework.recorder:
        raise VerifyError(f"programs of {framework.name} cannot be recorded")
    with as_file(files(__package__) / "recorder") as folder:
        yield folder / framework.recorder


def record_run(
    python: Path,
    entry: str,
    args: Sequence[str],
    folder: Path,
    output: Path,
    settings: RecordSettings,
    *,
    framework: Framework,
    stand_in: bool,
    original: Path,
    start: str = "",
    module: str | None = None,
    closely: bool = True,
    rounding: int = 0,
    own_draws: tuple[int, int] | None = None,
    focus: int | None = None,
    stop: int | None = None,
    ranks: StartedRanks | None = None,
    replicas: Path | None = None,
    env: Mapping[str, str] | None = None,
    modules: Path | None = None,
    on_progress: Callable[[float, str], None] | None = None,
) -> tuple[Run, Recording]:
    """Run ``entry`` under the recorder, in ``start`` in ``folder``, a copy of ``original``.

    ``stand_in``: the CPU replaces a missing GPU. ``module``: a name, to run it like ``python -m``.
    ``rounding``: the number of a run with different rounding, 0 for the original. ``own_draws``:
    not None where random numbers are the device's own, and dropout is on: what is added to the
    seeds that the program sets, and after how many calls that sample. ``focus``: a step; only its
    operations are recorded, all of them. ``stop``: the number of optimizer steps after which it
    ends. ``ranks``: how they are started; ``replicas``: the file that runs them as threads.
    ``modules``: a folder for the import path. Raises VerifyError if nothing is recorded.
    """
    output.mkdir(parents=True, exist_ok=True)
    uses_runtime = not stand_in or _imports_runtime(folder / start, entry, module)
    paths = search_path(original, folder, modules, with_runtime=uses_runtime)
    spec: dict[str, Any] = {
        **{name: getattr(settings, name) for name in _RECORDED},
        "output": str(output), "root": str(folder), "stand_in": [] if stand_in else None,
        "closely": closely, "rounding": rounding, "own_draws": own_draws, "focus": focus,
        "stop": stop, "stop_calls": settings.steps if settings.quick else None, "module": module,
        "original": str(original), "runtime": uses_runtime, **_several(ranks, replicas),
    }  # fmt: skip
    (output / "spec.json").write_text(json.dumps(spec), "utf-8")
    with recorder(framework) as program:
        command = [str(program), str(output / "spec.json"), entry, *args]
        if ranks is not None and replicas is None:
            command = ranks.command(command)
        done = run(
            [str(python), *command], cwd=folder / start, log=output / OUTPUT, grace=_GRACE,
            env={**paths, **(env or {})}, timeout=settings.timeout, on_progress=on_progress,
        )  # fmt: skip
    table, printed = _seen(output, done, settings, several=ranks is not None)
    if table is None:
        raise _nothing_recorded(entry, done)
    (output / EVENTS).write_text(json.dumps(table), "utf-8")
    if settings.memory and "out of memory" in table["ended"]:
        table["ended"] += f" (--memory {settings.memory / 2**30:g})"
    return done, recording_of(output, table, printed)


def _several(ranks: StartedRanks | None, replicas: Path | None) -> dict[str, Any]:
    """The recorder's settings for a program on several devices."""
    return {
        "devices": ranks.count if ranks is not None else None,
        "launched": ranks is not None and ranks.launched,
        "replicas": str(replicas) if replicas is not None else None,
    }


def _nothing_recorded(entry: str, done: Run) -> NothingRecorded:
    last = (done.tail(1) or "no output").strip()
    why = f"{done.failure() or 'ended'} before anything was recorded: {last}"
    return NothingRecorded(f"{entry} {why}")


def _seen(
    output: Path, done: Run, settings: RecordSettings, several: bool
) -> tuple[dict[str, Any] | None, str]:
    """The recording in a folder, of all ranks together, and the printed output."""
    table, printed = _table(output, done, settings), _printed(output)
    if not several:
        return table, printed
    folders = sorted((output / RANKS).glob("*"), key=lambda path: int(path.name))
    parts = [
        RankRecording(path, found) for path in folders if (found := _table(path, done, settings))
    ]
    whole = RankRecording(output, table) if table is not None else None
    found = merged(whole, parts, output, TENSORS) if whole or parts else None
    return found, printed + "".join(map(_printed, folders))


def _table(folder: Path, done: Run, settings: RecordSettings) -> dict[str, Any] | None:
    """The recording of one process, also of a killed one; None for nothing."""
    try:
        table: dict[str, Any] = json.loads((folder / EVENTS).read_text("utf-8"))
    except (OSError, ValueError):
        return _salvaged(folder, _why_killed(done, settings), done.seconds)
    return table


def _printed(folder: Path) -> str:
    try:
        return (folder / OUTPUT).read_text("utf-8", "replace")
    except OSError:
        return ""


def _imports_runtime(folder: Path, entry: str, module: str | None) -> bool:
    """Whether a program sets itself up for the target, as a portable one does."""
    file = folder / (entry if module is None else f"{module.replace('.', '/')}.py")
    return RUNTIME.encode() in (read_or_none(file) or b"")


def search_path(
    original: Path, folder: Path, modules: Path | None = None, *, with_runtime: bool = False
) -> dict[str, str]:
    """PYTHONPATH for a script in a copy, without the entry for tpu-migrate itself.

    ``modules``: a folder that goes first. ``with_runtime``: unless there is a copy, wheels of the
    runtime in the project are found, too: they need not be installed.
    """
    entries = [Path(p).absolute() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    found = [str(_led(p, original, folder)) for p in entries if p.resolve() != _OWN]
    found[:0] = [str(modules)] if modules is not None else []
    if with_runtime and not any(folder.rglob(f"{RUNTIME}/__init__.py")):
        vendor = project_root(resolved(original)) / FOLDER
        found += [str(path) for path in sorted(vendor.glob("*.whl")) if is_wheel(path.name)]
    return {"PYTHONPATH": os.pathsep.join(found)} if found else {}


def _led(path: Path, original: Path, folder: Path) -> Path:
    """Where a path leads from a copy: into the copy, or to the same place outside of it."""
    if ".." in path.parts:
        path = path.resolve()  # after a link, `..` is the parent of what the link leads to
    for inside, top in ((path, original), (path.resolve(), original.resolve())):
        if inside.is_relative_to(top):
            return folder / inside.relative_to(top)
    return path


def _why_killed(done: Run, settings: RecordSettings) -> str:
    if done.returncode is None:
        return STOPPED
    failure = done.failure() or "ended"
    text = done.tail(5)
    if settings.memory and ("alloc" in text.lower() or "memory" in text.lower()):
        failure += ", out of memory"
    return failure


def _salvaged(output: Path, ended: str, seconds: float) -> dict[str, Any] | None:
    """The partial recording of a killed run, made complete; None for nothing."""
    part, notes = (output / f"{TENSORS}.{end}" for end in ("part", "notes"))
    table: dict[str, Any] = {
        "ended": ended, "seconds": seconds, "events": [], "files": [], "left_out": [], "steps": 0,
        "randomness": {"drawn": 0, "before": 0, "dropped": 0, "traced": 0, "elsewhere": 0},
        "machine": None,
        "processes": 0, "outside": [], "not_copied": [],
    }  # fmt: skip
    entries: dict[str, Any] = {}
    try:
        size = part.stat().st_size
        with notes.open(encoding="utf-8") as lines:
            for text in lines:
                line = json.loads(text)
                entries |= line["entries"]
                table |= {name: line[name] for name in ("machine", "rank") if name in line}
                if "event" in line:
                    table["events"].append(line["event"])
                    table["steps"] = line["steps"]
    except (OSError, ValueError):
        pass  # the last line may be incomplete
    if table["machine"] is None:
        return None
    end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if end > size:
        return None
    digest = hashlib.sha256()
    with part.open("rb") as data, (output / TENSORS).open("wb") as whole:
        rest = end
        block = header(entries)
        while block:
            whole.write(block)
            digest.update(block)
            block = data.read(min(rest, 2**22))
            rest -= len(block)
    part.unlink()
    notes.unlink()
    return {**table, "tensors_sha256": digest.hexdigest()}


def recording_of(
    folder: Path, table: dict[str, Any], printed: str, tensors: str = TENSORS
) -> Recording:
    names = {f.name for f in fields(Recording)}
    found = {name: value for name, value in table.items() if name in names}
    return Recording(**{**found, "folder": folder, "printed": printed, "tensors": tensors})
