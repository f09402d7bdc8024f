"""Additional measurements of an app: scripts of the checkout, named in app.toml.

Each is run by this interpreter, and gets the target's interpreter (``--python``) and the file for
its rows (``--json``): a list of objects with the fields of Measure.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from .run_script import run
from .verify_result import Measure

_SECONDS = 1800.0  # for each script


def measure(
    scripts: Iterable[Path],
    python: Path,
    folder: Path,
    on_progress: Callable[[float, str], None] | None = None,
) -> tuple[list[Measure], list[str]]:
    """The rows of all ``scripts``, and a line for each failure; logs go to ``folder``."""
    found: list[Measure] = []
    problems = []
    for script in scripts:
        rows = folder / f"{script.stem}.json"
        done = run(
            [sys.executable, str(script), "--python", str(python), "--json", str(rows)],
            cwd=folder,
            log=folder / f"{script.stem}.log",
            timeout=_SECONDS,
            on_progress=on_progress,
        )
        try:
            own = [Measure(**row) for row in json.loads(rows.read_text(encoding="utf-8"))]
            found += own
            if done.failure() and not any(row.passed is False for row in own):
                problems.append(f"{script.name} {done.failure()}: {done.tail(1).strip()}")
        except (OSError, ValueError, TypeError):
            last = done.tail(1).strip()
            problems.append(f"{script.name} {done.failure() or 'wrote no rows'}: {last}")
    if missed := sum(row.passed is False for row in found):
        problems.append(f"{missed} of {len(found)} measurements are not met")
    return found, problems
