"""A chart of the losses of both runs, drawn by the target's interpreter if it has pillow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from .in_target_python import ask
from .verify_errors import VerifyError
from .verify_result import finite

if TYPE_CHECKING:
    from .script_result import ScriptResult

_SECONDS = 120.0


def draw(result: ScriptResult, python: Path, folder: Path) -> list[str]:
    """Write ``drift.png`` to ``folder``; returns notes for the result."""
    losses = result.losses
    if len(losses) < 2:
        return []
    picture, spec = folder / "drift.png", folder / "drift.json"
    title = f"{result.script} on the {result.device}, golden: {result.golden_device}"
    spec.write_text(json.dumps({"title": title, "losses": finite(losses)}), "utf-8")
    arguments = [str(spec), str(picture)]
    try:
        answer = ask(python, "drift_picture.py", arguments, timeout=_SECONDS, cwd=folder)
        error = answer["error"]
    except VerifyError as problem:
        error = str(problem)
    return [f"no drift.png: {error}"] if error else [f"losses of both: {picture}"]
