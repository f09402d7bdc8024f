"""An original that only starts under the target's versions once its old names are upgraded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from migrator import migrate_paths
from migrator.codes import UPGRADES
from migrator.config import Config
from migrator.diagnostics import Outcome
from migrator.report.statistics import count_noun
from migrator.targets import Target

from .script import Script


def upgraded(script: Script, target: Target, work: Path) -> tuple[Script, str] | None:
    """A copy of the script with the upgrades alone, and a note; None if it has none to make."""
    folder = work / "upgraded"
    config = Config(select=(UPGRADES,))
    program = migrate_paths([script.folder / script.file], target.name, config=config)
    made = [d for _, d in program.diagnostics(Outcome.REWRITTEN) if d.code.startswith(UPGRADES)]
    if not made or program.failures:
        return None
    migrate_paths([script.folder], target.name, config=config, output=folder)
    codes = ", ".join(sorted({d.code for d in made}))
    note = (
        "the original does not run with these versions of its libraries, so it got "
        f"{count_noun(len(made), 'upgrade')}, too ({codes}); "
        f"`tpu-migrate {script.entry} --target {target.name} --select {UPGRADES} --diff` shows them"
    )
    return replace(script, folder=folder), note
