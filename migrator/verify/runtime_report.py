"""What the runtime reports on a run: see `report_writing.py` of the runtimes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RuntimeReport:
    """Empty if the run was killed, or used no runtime."""

    text: str | None = None  # one item a line
    in_parts: list[str] = field(default_factory=list)  # steps and modules: not compiled as a whole


def read_report(path: Path) -> RuntimeReport:
    """The reports of a program and of the ranks that it started: `report.json`,
    `report.rank0.json`; a rank's lines begin with its name."""
    lines: list[str] = []
    in_parts: dict[str, None] = {}
    for file in (path, *sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))):
        report = _read(file)
        name = file.stem.removeprefix(path.stem)  # ".rank0"
        front = f"{name[1:]}: " if name else ""
        lines += [front + line for line in str(report.get("text", "")).splitlines()]
        functions = report.get("functions", [])
        in_parts |= {f["name"]: None for f in functions if f["why_eager"] and f["calls"]}
    return RuntimeReport("\n".join(lines) or None, [*in_parts])


def _read(path: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report
