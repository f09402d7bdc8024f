"""The apps and goldens of a checkout: reference_apps/<app>/app.toml and golden/<app>."""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .safetensors_files import Damaged, read_header
from .verify_errors import VerifyError
from .verify_result import Tolerance

_SCHEMA = 1  # of provenance.json

Steps = dict[str, tuple[float | None, float | None]]  # name: seconds of the first and of later runs
Figures = dict[str, float]  # by name: what an app reports about its run


@dataclass(frozen=True)
class App:
    """A GPU original and how to run it; paths other than ``folder`` are relative to its copy."""

    name: str
    folder: Path
    entry: str
    args: list[str]
    outputs: Path | None  # None: nothing to compare with
    times: Path | None
    tolerances: dict[str, Tolerance]  # by output, for one target
    timeout: float  # seconds, if the user gives none
    precision: str  # of float32 products, as the script requests it: "highest" by default
    devices_args: Sequence[str] = ()  # further ones for several devices
    shard: str = "replicated"  # --shard of the migration
    unsafe: bool = False  # --unsafe of the migration
    frames: Sequence[str] = ()  # outputs that are images, (T, H, W, 3) in uint8
    measures: Sequence[Path] = ()  # scripts of the checkout, for one target
    requires: Sequence[str] = ()  # frameworks that it imports, in addition to the target's packages
    framework: str = "torch"  # of which it is a program


@dataclass(frozen=True)
class Golden:
    """The original's outputs, and where they come from."""

    outputs: Path
    device: str
    steps: Steps
    figures: Figures
    source: str | None  # digest of the app it was captured from


def checkout(start: Path | None = None) -> Path:
    """The nearest folder with reference_apps/ and golden/: upward from ``start`` (the current
    folder), else from this package. Raises VerifyError where there is none."""
    for folder in _upward(start or Path.cwd(), Path(__file__).parents[2]):
        if (folder / "reference_apps").is_dir() and (folder / "golden").is_dir():
            return folder
    raise VerifyError(
        "verify needs a checkout of tpu-migrate (a folder with reference_apps/ and golden/): "
        "run it inside one"
    )


def _upward(*starts: Path) -> Iterator[Path]:
    for start in starts:
        yield start
        yield from start.parents


def app_names() -> list[str]:
    """The apps of the checkout, sorted. Raises VerifyError where there are none."""
    root = checkout()
    names = sorted(path.parent.name for path in root.glob("reference_apps/*/app.toml"))
    if not names:
        raise VerifyError(f"{root / 'reference_apps'} holds no app (no */app.toml)")
    return names


def recorded(name: str) -> Path | None:
    """The golden of an app that was recorded like a script; None for one with outputs."""
    folder = checkout() / "golden" / name
    return folder if (folder / "golden.json").is_file() else None


def framework_of(name: str) -> str:
    """The framework of an app; torch for unknown apps, which are refused elsewhere."""
    try:
        path = checkout() / "reference_apps" / name / "app.toml"
        return str(tomllib.loads(path.read_text(encoding="utf-8")).get("framework", "torch"))
    except (VerifyError, OSError, ValueError):
        return "torch"


def find_app(name: str, target: str) -> App:
    """Read an app's app.toml, with the tolerances of ``target``.

    Raises VerifyError, in one line, where it is missing or wrong.
    """
    try:
        path = checkout() / "reference_apps" / name / "app.toml"
    except VerifyError as error:
        raise VerifyError(f"no such file; and for an app, {error}") from error
    if Path(name).name != name or not path.is_file():
        raise VerifyError(f"no app {name!r}; there are: {', '.join(app_names())}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        times = table.get("times")
        outputs = recorded(name) is None
        return App(
            name=name,
            folder=path.parent,
            entry=_inside(table["entry"]),
            args=[str(argument) for argument in table.get("args", [])],
            outputs=Path(_inside(table["outputs"])) if outputs else None,
            times=Path(_inside(times)) if times else None,
            tolerances=_tolerances(table["tolerances"], target) if outputs else {},
            timeout=float(table.get("timeout_s", 1800)),
            precision=str(table.get("precision", "highest")),
            devices_args=[str(argument) for argument in table.get("devices_args", [])],
            shard=str(table.get("shard", "replicated")),
            unsafe=bool(table.get("unsafe", False)),
            frames=[str(name) for name in table.get("frames", [])],
            measures=[_script(name) for name in table.get("measures", {}).get(target, [])],
            requires=[str(name) for name in table.get("requires", [])],
            framework=str(table.get("framework", "torch")),
        )
    except KeyError as error:
        raise VerifyError(f"{path}: {error} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:  # also what tomllib and UTF-8 raise
        raise VerifyError(f"{path}: {error}") from error


def _inside(text: Any) -> str:
    """A path of app.toml, which must stay inside the migrated copy."""
    path = Path(str(text))
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{text!r} must be a path inside the app's folder")
    return str(path)


def _script(text: Any) -> Path:
    """A file of the checkout."""
    path = checkout() / _inside(text)
    if not path.is_file():
        raise ValueError(f"measures: there is no {text}")
    return path


def _tolerances(table: Mapping[str, Any], target: str) -> dict[str, Tolerance]:
    """The default tolerances, each replaced by the target's own if it has one."""
    merged = {**table.get("default", {}), **table.get(target, {})}
    return {output: _tolerance(values) for output, values in merged.items()}


def _tolerance(values: Mapping[str, Any]) -> Tolerance:
    known = {field.name for field in fields(Tolerance)}
    if unknown := values.keys() - known:
        raise ValueError(f"unknown key in tolerances: {', '.join(sorted(unknown))}")
    tolerance = Tolerance(**values)
    if not tolerance.reason:
        raise ValueError("a tolerance needs a reason")
    numbers = (tolerance.atol, tolerance.rtol, tolerance.max_mismatch)
    if not all(0 <= number < float("inf") for number in numbers) or tolerance.max_mismatch >= 1:
        raise ValueError("a tolerance is a number of at least 0; max_mismatch is below 1")
    return tolerance


def load_golden(app: App) -> Golden:
    """Find an app's golden and hold it against its provenance.

    Raises VerifyError, in one line, where it is missing, damaged or another app's.
    """
    folder = app.folder.parents[1] / "golden" / app.name
    outputs, source = folder / "outputs.safetensors", folder / "provenance.json"
    try:
        provenance = json.loads(source.read_text(encoding="utf-8"))
        read_header(outputs)
    except OSError as error:
        raise VerifyError(f"golden refused: {source} cannot be read ({error.strerror})") from error
    except Damaged as error:
        raise VerifyError(f"golden refused: {error}") from error
    except ValueError as error:
        raise VerifyError(f"golden refused: {source} is not JSON ({error})") from error
    try:
        return _hold_against(provenance, outputs, app)
    except (KeyError, TypeError, AttributeError) as error:
        raise VerifyError(f"golden refused: {error} is missing or malformed in {source}") from error


def _hold_against(provenance: dict[str, Any], outputs: Path, app: App) -> Golden:
    if provenance["schema"] != _SCHEMA:
        raise VerifyError(
            f"golden refused: {outputs.parent} has schema {provenance['schema']}, not {_SCHEMA}"
        )
    if provenance["app"] != app.name:
        raise VerifyError(f"golden refused: {outputs.parent} is of the app {provenance['app']!r}")
    if provenance["outputs_sha256"] != hashlib.sha256(outputs.read_bytes()).hexdigest():
        raise VerifyError(f"golden refused: {outputs} is not the file of its provenance")
    kind, name = provenance["device"]["kind"], provenance["device"]["name"]
    device = name if kind == "NVIDIA GPU" else f"{kind}, {name}"
    steps, figures = _steps(provenance["times"]), _figures(provenance.get("figures", {}))
    return Golden(outputs, device, steps, figures, provenance.get("source_sha256"))


def source_digest(folder: Path) -> str:
    """SHA-256 over names and contents of an app's source and data, as golden/capture.py has it."""
    total = hashlib.sha256()
    paths = [*folder.rglob("*.py"), *(folder / "data").rglob("*")]
    for path in sorted(path for path in paths if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def read_times(path: Path) -> tuple[Steps, Figures]:
    """The step times and the figures that a script wrote; empty where there are none."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return _steps(table["steps"]), _figures(table.get("figures", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, {}


def _steps(table: dict[str, dict[str, float]]) -> Steps:
    return {name: (step.get("first_s"), step.get("later_s")) for name, step in table.items()}


def _figures(table: dict[str, float]) -> Figures:
    return {name: float(value) for name, value in table.items()}
