"""How a verification is made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.analysis.installed_versions import is_environment
from migrator.config import Config

from . import tpu

if TYPE_CHECKING:
    from rich.console import Console

    from .runtime_report import RuntimeReport

# Writes the migrated copy of a folder into a new one, for a target; returns errors, one a line.
Migration = Callable[[Path, str, Path], list[str]]
# Reads what was compiled for an absent TPU, before the folder is removed.
StepReader = Callable[[tpu.TpuReport, "RuntimeReport", Path, Sequence[Path]], None]


@dataclass(frozen=True)
class RunOptions:
    """How to verify.

    ``python``: the interpreter; by default one is searched for, and created if ``install`` is set
    (or if the user, asked on a terminal, agrees). ``timeout``: seconds for the migrated script, by
    default the app's. ``keep``: a folder for all files of the verification. ``console`` shows
    progress, questions and the migration; with ``diff`` all of its edits. ``portable``, ``unsafe``,
    ``shard``: migrate with these; a portable program is made to choose the target. ``compile_for``:
    also compile all programs with products for this TPU. ``devices``: how many to use, virtual ones
    without a TPU. ``measure``: also run the app's measurements. ``migrate``: another migration than
    tpu-migrate's. ``bisect``: if a script's numbers differ, find the operation. ``read_steps``:
    only steps are compiled; it gets the report, the runtime's, the migrated copy and the folders
    of programs. ``compute``: if not, compiled programs give zeros; ``recompute``: activations of
    repeated blocks are computed again in the backward pass (both torchax). ``precision``: of
    float32 products. ``all_programs``: steps that ran only once are compiled, too. ``asked``: the
    words after `tpu-migrate verify` on the command line, which messages repeat.
    """

    python: Path | None = None
    install: bool = False
    timeout: float | None = None
    keep: Path | None = None
    console: "Console | None" = None
    diff: bool = False
    portable: bool = False
    unsafe: bool = False
    compile_for: str | None = None
    devices: int | None = None
    shard: str | None = None
    measure: bool = False
    migrate: Migration | None = None
    bisect: bool = False
    read_steps: StepReader | None = None
    compute: bool = True
    recompute: bool = False
    precision: str | None = None
    all_programs: bool = False
    asked: Sequence[str] = ()

    @property
    def config(self) -> Config:
        shard = self.shard or "replicated"
        python = str(self.python) if self.python and is_environment(self.python) else None
        return Config(
            portable=self.portable, unsafe=self.unsafe, shard=shard, python=python,
            precision=self.precision,
        )  # fmt: skip
