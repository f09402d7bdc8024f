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

    `note` is shown with the edit (what the change costs). `safety` overrides that of the rule.
    """

    edits: Sequence[Edit]
    requires: Sequence[str] = ()
    note: str = ""
    advice: str = ""  # what an expert would add, as for `Keep`
    safety: Safety | None = None
    works: bool = False  # even without the edit: if that is unsafe, it is mere advice
    leaves: Sequence[ast.AST] = ()  # these stay as they are, with everything in them
    drops: Sequence[ast.AST] = ()  # these go, and all that they do is known to be of no more use


@dataclass(frozen=True)
class Keep:
    """Right as it is on the target, for this reason; `advice` is what an expert would add.

    `unsafe` says what may change if --unsafe rewrites it.
    """

    reason: str
    advice: str = ""
    unsafe: str = ""
    leaves: Sequence[ast.AST] = ()  # these stay as they are, with everything in them


def advice(text: str) -> Keep:
    """What an expert would say about code that is not a construct."""
    return Keep("right as it stands", text)


@dataclass(frozen=True)
class Obstacle:
    """The line that keeps a program from being rewritten; `path` is None for the file itself."""

    path: Path | None
    line: int
    reason: str


@dataclass(frozen=True)
class Report:
    """Needs a manual change: what prevents a rewrite, and what to do.

    `whole` stays as it is with everything in it, where half a rewrite would be wrong. `effort`
    overrides that of the rule. `unsafe` says what may change if --unsafe rewrites it. If a file
    stays with its program, `obstacle` is the line that keeps the program, and `files` are its
    other files.
    """

    reason: str
    whole: ast.AST | None = None
    effort: Effort | None = None
    unsafe: str = ""
    obstacle: Obstacle | None = None
    files: Sequence[Path] = ()


Decision = Rewrite | Keep | Report
