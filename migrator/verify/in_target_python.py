"""Runs this package's own scripts inside the interpreter of a target.

They travel by standard input, so nothing of the migrator gets onto that interpreter's path, and
a wheel inside a zip works too.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from .verify_errors import VerifyError

# Settings for tpu-migrate's own Python that would affect another one.
_OWN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__")


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment for another interpreter, with ``extra`` on top."""
    kept = {name: value for name, value in os.environ.items() if name not in _OWN}
    return {**kept, **(extra or {})}


def command_line(command: Sequence[str]) -> str:
    """A command as a user would type it in this platform's shell."""
    if sys.platform == "win32":
        # cmd.exe treats < and > outside of double quotes as redirections
        return " ".join(f'"{word}"' if set(word) & set(" <>;&|") else word for word in command)
    return " ".join(map(_quoted, command))


def _quoted(word: str) -> str:
    """In double quotes where there are single ones inside, as in a requirement's marker."""
    in_double = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if in_double else shlex.quote(word)


def ask(
    python: Path,
    script: str,
    arguments: Sequence[str],
    *,
    timeout: float,
    cwd: Path,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run ``script``, a file of this package, with ``python``; return the JSON that it prints last.

    ``timeout`` is in seconds. Raises VerifyError, with the script's last line of error output, if
    it fails, takes too long or prints something else.
    """
    source = (files(__package__) / script).read_text(encoding="utf-8")
    try:
        done = subprocess.run(
            [str(python), "-", *arguments],
            input=source,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            cwd=cwd,
            env=child_environment(env),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise VerifyError(f"{script} in {python} took more than {timeout:.0f} s") from error
    except OSError as error:
        raise VerifyError(f"{python} cannot be run: {error.strerror or error}") from error
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if done.returncode == 0 and lines else None
    except json.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise VerifyError(f"{script} failed in {python} (exit {done.returncode}): {last}")
    return answer
