"""What a rule may decide about a construct."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.diagnostics import Effort, Safety
from migrator.edits import Edit


@dataclass(frozen=True)
class Rewrite:
    """Edits that belong together. `requires` lists modules that the new code imports.

    `note` is said beside the edit (what the change costs). `safety` overrides the rule's own.
    """

    edits: Sequence[Edit]
    requires: Sequence[str] = ()
    note: str = ""
    advice: str = ""  # what an expert would add, as of `Keep`
    safety: Safety | None = None
    works: bool = False  # without the edit, too: an unsafe one is advice, and nothing to do
    leaves: Sequence[ast.AST] = ()  # left as they are, with everything in them


@dataclass(frozen=True)
class Keep:
    """Right as it stands on the target, for this reason; `advice` is what an expert would add.

    `unsafe` says what may change where --unsafe would rewrite it.
    """

    reason: str
    advice: str = ""
    unsafe: str = ""
    leaves: Sequence[ast.AST] = ()  # as they are, with everything in them


def advice(text: str) -> Keep:
    """What an expert would say of code that is no construct."""
    return Keep("right as it stands", text)


@dataclass(frozen=True)
class Obstacle:
    """The line that is in the way of a program; `path` is None for the file itself."""

    path: Path | None
    line: int
    reason: str


@dataclass(frozen=True)
class Report:
    """Left to change by hand: what is in the way, and what to do.

    `whole` is left as it is with everything in it, where half an edit would be wrong. `effort`
    overrides the rule's own. `unsafe` says what may change where --unsafe would rewrite it. Of a
    file that stays with a program, `obstacle` is what keeps that, and `files` are others of it.
    """

    reason: str
    whole: ast.AST | None = None
    effort: Effort | None = None
    unsafe: str = ""
    obstacle: Obstacle | None = None
    files: Sequence[Path] = ()


Decision = Rewrite | Keep | Report
