"""Notes of a verification, in addition to its numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from migrator.diagnostics import Outcome
from migrator.report.findings import as_written
from migrator.runs.run_report import Report

from .comparisons import Comparison
from .goldens import ScriptGolden, digest
from .recordings import Recording, RecordSettings
from .tolerances import GROWN
from .verify_errors import VerifyError

if TYPE_CHECKING:
    from .script import Script

_MUCH = 100.0  # growth from which it is mentioned


def notes_on_quick(first: Recording, settings: RecordSettings) -> list[str]:
    """The parts that --quick left out."""
    if not settings.quick or not (first.shortened or first.steps > settings.steps):
        return []
    return [
        f"--quick did not look at what comes after {settings.steps} steps (or calls of a "
        "model, where nothing is trained), such as evaluation and files"
    ]


_DEVICE_OPTION = re.compile(r"""["'](--[\w-]*(?:cuda|gpu|device)[\w-]*)["']""")


def device_option(script: Script) -> str:
    """The options of a script that may choose its device; or nothing."""
    text = (script.folder / script.file).read_text(encoding="utf-8", errors="replace")
    found = [
        each for each in dict.fromkeys(_DEVICE_OPTION.findall(text)) if each not in script.args
    ]
    return f" (its options: {', '.join(found[:3])})" if found else ""


def reported_at(ended: str, report: Report | None) -> str:
    """What the migration has reported of the line at which a migrated script failed; or nothing."""
    place = re.search(r"(?:^|\s)(\S+?):(\d+): ", ended)
    if place is None or report is None:
        return ""
    for path, d in as_written(report, edits=False).diagnostics(Outcome.REPORTED):
        if path.as_posix() == place[1] and d.range.line == int(place[2]):
            return f"; this line is left to change by hand: {d.code}: {d.message}"
    return ""


def notes_on_golden(golden: ScriptGolden, script: Script) -> list[str]:
    notes = []
    if golden.script != script.name:
        raise VerifyError(f"golden refused: it is of {golden.script}, not of {script.name}")
    if golden.args != list(script.args):
        given = " ".join(golden.args) or "none"
        raise VerifyError(f"golden refused: it was recorded with other arguments ({given})")
    ranks = script.ranks.count if script.ranks is not None else 0
    if golden.first.ranks != ranks:
        wanted = f"--devices {golden.first.ranks}" if golden.first.ranks else "no --devices"
        raise VerifyError(f"golden refused: it was recorded with {wanted}")
    if golden.source != digest(script.folder):
        at = f" (at commit {golden.commit[:10]})" if golden.commit else ""
        notes.append(f"the code has changed since the golden was recorded{at}")
    return notes


def note_on_free(comparison: Comparison) -> str:
    """A note on values that only pass because nothing determines them; "" if there are none."""
    free = list(dict.fromkeys(f"{f.name}.{f.place}" for f in comparison.findings if f.free))
    if not free or not comparison.passed:
        return ""
    many = f"{free[0]} and {len(free) - 1} more" if len(free) > 1 else free[0]
    return (
        f"{many}: moved by nothing but rounding (a gradient that should be 0, as of a bias before "
        "BatchNorm), so what comes of it is compared: outputs, losses, other gradients"
    )


def note_on_growth(comparison: Comparison, golden: Recording) -> str:
    """A note on rounding growth; "" if it is small."""
    growth = comparison.growth / GROWN
    if growth < _MUCH:
        return ""
    grown = f"rounding alone grows {growth:,.0f}-fold over {golden.steps} steps here"
    if comparison.lost:
        return (
            f"{grown}: weights at the end and files would say nothing, so they are left out; "
            "run fewer steps"
        )
    return f"{grown}: later steps are compared that much less closely"
