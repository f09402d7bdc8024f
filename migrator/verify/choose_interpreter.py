"""Chooses the interpreter for a verification; installs one only if the user agrees."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.targets import DEFAULT, Target, targets

from . import environments, interpreters
from .in_target_python import command_line
from .interpreters import Interpreter
from .verify_errors import VerifyError
from .verify_progress import about, progress

if TYPE_CHECKING:
    from rich.console import Console

    from .run_options import RunOptions


def choose_interpreter(
    target: Target, options: RunOptions, by_import: bool = True, requires: Sequence[str] = ()
) -> Interpreter:
    """The interpreter to use; one is installed only by --install or a yes on a terminal.

    Not ``by_import``: by what is installed there, where a run will import it anyway. ``requires``:
    frameworks that it has to have, too; they are installed only into an environment of ours.
    """
    install, console = options.install, options.console
    with progress(console, f"looking for an interpreter with {target.name}"):
        if options.python:
            found: Interpreter | None = interpreters.require(options.python, target, by_import)
        else:
            found = interpreters.find(target, by_import)
    if found is None:
        if not install and not _agreed(target, console):
            raise VerifyError(environments.how_to(target, options.asked))
        if console is not None:
            console.print(f"Installing {environments.announcement(target)}", highlight=False)
        start = time.monotonic()
        found = interpreters.require(environments.install(target), target)
        if console is not None:
            console.print(f"Installed in {about(time.monotonic() - start)}", highlight=False)
    missing = [framework for framework in requires if framework not in found.versions]
    return _with(found, missing, install, console) if missing else found


def with_tpu_compiler(interpreter: Interpreter) -> Path:
    """An interpreter that can compile for an absent TPU: this one, or another target's.

    Raises VerifyError if there is none.
    """
    if interpreter.target.host.has_tpu_compiler:
        return interpreter.python
    framework = interpreter.target.framework
    able = [target for target in targets().values() if target.host.has_tpu_compiler]
    able.sort(key=lambda target: (target.framework != framework, target.name != DEFAULT))
    for target in able:
        if found := interpreters.find(target, by_import=False):
            return found.python
    names = " or ".join(target.name for target in able)
    raise VerifyError(
        f"the TPU compiler is in the environment of {names}, which is not installed: "
        f"tpu-migrate doctor --target {able[0].name} --install"
    )


def _with(
    found: Interpreter, missing: Sequence[str], install: bool, console: Console | None
) -> Interpreter:
    """The interpreter, with some frameworks in the versions that were tested."""
    wanted = [found.target.environment.framework(name) for name in missing]
    if not install or found.python != environments.cached_python(found.target):
        fix = command_line([*found.installer, *wanted])
        raise VerifyError(f"{found.python} has no {', '.join(missing)}. Fix: {fix}")
    if console is not None:
        console.print(f"Installing {', '.join(wanted)} there, too", highlight=False)
    environments.add(found.target, wanted)
    interpreters.forget()
    return interpreters.require(found.python, found.target)


def _agreed(target: Target, console: Console | None) -> bool:
    if console is None or not console.is_terminal or not sys.stdin.isatty():
        return False
    from rich.prompt import Confirm

    question = f"Install {environments.announcement(target)}?"
    return Confirm.ask(question, console=console, default=False)
