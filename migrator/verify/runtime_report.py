"""What the runtime reports on a run: see `report_writing.py` of the runtimes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class HostRead:
    """A line at which the host waits for values of the device: `train.py:9: loss.item()`.

    ``file``: the same file with its folder.
    """

    line: str
    file: str
    times: int
    bytes: int


_MANY = 4  # a first step and a last batch have programs of their own


@dataclass(frozen=True)
class RuntimeReport:
    """Empty if the run was killed, or used no runtime."""

    text: str | None = None  # one item a line
    in_parts: list[str] = field(default_factory=list)  # steps and modules: not compiled as a whole
    recompiled: list[str] = field(default_factory=list)  # steps and modules of many programs
    reads: list[HostRead] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)  # of programs, by their files


def read_report(path: Path) -> RuntimeReport:
    """The reports of a program and of the ranks that it started: `report.json`,
    `report.rank0.json`; a rank's lines begin with its name."""
    lines: list[str] = []
    in_parts: dict[str, None] = {}
    recompiled: dict[str, None] = {}
    reads: dict[HostRead, None] = {}
    runs: dict[str, int] = {}
    for file in (path, *sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))):
        report = _read(file)
        name = file.stem.removeprefix(path.stem)  # ".rank0"
        front = f"{name[1:]}: " if name else ""
        lines += [front + line for line in str(report.get("text", "")).splitlines()]
        functions = report.get("functions", [])
        in_parts |= {f["name"]: None for f in functions if f["why_eager"] and f["calls"]}
        recompiled |= dict.fromkeys(map(_many, (f for f in functions if f["programs"] >= _MANY)))
        reads |= dict.fromkeys(HostRead(**read) for read in report.get("reads", []))
        runs |= report.get("runs", {})
    return RuntimeReport("\n".join(lines) or None, [*in_parts], [*recompiled], [*reads], runs)


def _many(function: dict[str, Any]) -> str:
    return f"{function['name']}: {function['programs']} programs in {function['calls']} calls"


def _read(path: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report
