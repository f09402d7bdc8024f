"""What the runtime reports on a run: see `report.py` of the runtimes."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class RuntimeReport:
    """Empty if the run was killed, or used no runtime."""

    text: str | None = None  # one item a line
    in_parts: list[str] = field(default_factory=list)  # steps and modules: not compiled as a whole


def read_report(path: Path) -> RuntimeReport:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return RuntimeReport()
    functions = report.get("functions", [])
    in_parts = [f["name"] for f in functions if f["why_eager"] and f["calls"]]
    return RuntimeReport(report.get("text"), in_parts)
