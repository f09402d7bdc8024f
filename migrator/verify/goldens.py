"""Goldens: recordings that are kept, and read again.

A golden is a folder with `golden.json` (what happened, and where), `tensors.safetensors`,
`output.txt` (what it printed); `rounding-1.*` and so on are of runs whose layers round otherwise.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.distribution import __version__

from .recordings import EVENTS, OUTPUT, TENSORS, Recording, RecordSettings, recording_of
from .safetensors_files import Damaged, read_header
from .verify_errors import VerifyError

SCHEMA = 3  # of golden.json; 1 is that of the apps' provenance.json
LAYERS = 2  # what is kept of layers; True is that of versions without gradients of outputs
TABLE = "golden.json"


@dataclass(frozen=True)
class ScriptGolden:
    """A script's golden, and the script it belongs to."""

    first: Recording
    rounded: list[Recording]
    settings: RecordSettings
    script: str
    args: list[str]
    device: str
    source: str
    commit: str | None = None  # the git commit with this source

    @property
    def tf32(self) -> bool:
        """Whether it has products in TF32. Those of convolutions that are called as functions are
        only seen in runs with different rounding."""
        return any(recording.machine["tf32"] for recording in (self.first, *self.rounded))


def keep(
    output: Path,
    first: Path,
    rounded: Sequence[Path],
    settings: RecordSettings,
    script: str,
    args: Sequence[str],
    source: str,
    commit: str | None = None,
) -> None:
    """Create a golden from the folders of two runs.

    Raises VerifyError if the folder contains something else, or can't be written.
    """
    table = json.loads((first / EVENTS).read_text("utf-8"))
    whole = {
        "schema": SCHEMA,
        "made_by": f"tpu-migrate {__version__}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "script": script,
        "args": list(args),
        "source_sha256": source,
        "commit": commit,
        "device": device_of(table["machine"]),
        "settings": {
            "seed": settings.seed,
            "steps": settings.steps,
            "dropout": settings.dropout,
            **({"layers": LAYERS} if settings.layers else {}),
        },
        "run": table,
        "roundings": [json.loads((run / EVENTS).read_text("utf-8")) for run in rounded],
    }
    try:
        output.mkdir(parents=True, exist_ok=True)
        for number, run_folder in enumerate([first, *rounded]):
            tensors, printed = _names(number)
            shutil.copyfile(run_folder / TENSORS, output / tensors)
            shutil.copyfile(run_folder / OUTPUT, output / printed)
        whole["sha256"] = _digest(whole, output)
        partial = output / f"{TABLE}.part"
        partial.write_text(json.dumps(whole, indent=1), "utf-8")
        partial.replace(output / TABLE)
    except OSError as error:
        raise VerifyError(f"{output} cannot be written: {error.strerror}") from error


def is_golden(folder: Path) -> bool:
    """Whether a folder looks like one that `keep` created."""
    return (folder / TABLE).is_file() and (folder / TENSORS).is_file()


def _digest(whole: dict[str, Any], folder: Path) -> str:
    """The digest of a golden's table and printed output; the tensors have one of their own."""
    total = hashlib.sha256(json.dumps(whole, sort_keys=True).encode())
    for number in range(len(whole["roundings"]) + 1):
        path = folder / _names(number)[1]
        total.update(path.read_bytes() if path.is_file() else b"")
    return total.hexdigest()


def device_of(machine: dict[str, Any]) -> str:
    """The device of a recording, in words."""
    name = str(machine["device"])
    return name if "stand-in" not in name else f"{name} ({machine['machine']})"


def read_golden(folder: Path) -> ScriptGolden:
    """Raises VerifyError, in one line, if a golden is missing, damaged or of another script."""
    path = folder / TABLE
    try:
        whole = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise VerifyError(f"golden refused: {path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise VerifyError(f"golden refused: {path} is not JSON ({error})") from error
    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        raise VerifyError(
            f"golden refused: {path} was not written by `tpu-migrate record` (schema {SCHEMA})"
        )
    told = whole.pop("sha256", None)
    if told != _digest(whole, folder):
        raise VerifyError(f"golden refused: {path} or what was printed has been changed")
    try:
        tables = [whole["run"], *whole["roundings"]]
        first, *rounded = [_checked(folder, table, *_names(n)) for n, table in enumerate(tables)]
        kept = {**whole["settings"], "layers": whole["settings"].get("layers") == LAYERS}
        settings = RecordSettings(**kept, roundings=len(rounded))
        return ScriptGolden(
            first, rounded, settings, whole["script"], whole["args"], whole["device"],
            whole["source_sha256"], whole.get("commit"),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise VerifyError(f"golden refused: {error} is missing or malformed in {path}") from error


def _checked(folder: Path, table: dict[str, Any], name: str, output: str) -> Recording:
    tensors = folder / name
    try:
        read_header(tensors)
        with tensors.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except Damaged as error:
        raise VerifyError(f"golden refused: {error}") from error
    if content != table["tensors_sha256"]:
        raise VerifyError(f"golden refused: {tensors} is not the file that {TABLE} names")
    printed = folder / output
    text = printed.read_text("utf-8", "replace") if printed.is_file() else ""
    return recording_of(folder, table, text, name)


def _names(number: int) -> tuple[str, str]:
    """The files of a golden's tensors and printed output; 0 is the original without extra
    rounding."""
    return (
        (f"rounding-{number}.safetensors", f"rounding-{number}.txt")
        if number
        else (TENSORS, OUTPUT)
    )


def digest(folder: Path) -> str:
    """SHA-256 over names and contents of the Python files of a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return total.hexdigest()
