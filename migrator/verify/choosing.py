"""Which interpreter a verification runs in; one is installed only where the user wants it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.targets import Target

from . import environments, interpreters
from .errors import VerifyError
from .interpreters import Interpreter
from .progress import progress

if TYPE_CHECKING:
    from rich.console import Console


def choose_interpreter(
    target: Target,
    python: Path | None,
    install: bool,
    console: Console | None,
    name: str,
    by_import: bool = True,
) -> Interpreter:
    """The interpreter to use; one is installed only by --install or a yes on a terminal.

    Not ``by_import``: by what is installed there, where a run will import it anyway.
    """
    with progress(console, f"looking for an interpreter with {target.name}"):
        if python:
            found: Interpreter | None = interpreters.require(python, target, by_import)
        else:
            found = interpreters.find(target, by_import)
    if found is not None:
        return found
    if not install and not _agreed(target, console):
        raise VerifyError(environments.how_to(target, name))
    if console is not None:
        console.print(f"Installing {environments.announcement(target)}", highlight=False)
    return interpreters.require(environments.install(target), target)


def _agreed(target: Target, console: Console | None) -> bool:
    if console is None or not console.is_terminal or not sys.stdin.isatty():
        return False
    from rich.prompt import Confirm

    question = f"Install {environments.announcement(target)}?"
    return Confirm.ask(question, console=console, default=False)
