"""The command that comes after a verification."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from migrator.diagnostics import Outcome

from .in_target_python import command_line
from .script_result import ScriptResult

if TYPE_CHECKING:
    from .verify_arguments import VerifyArguments
    from .verify_result import VerifyResult


def what_next(result: VerifyResult | ScriptResult, asked: VerifyArguments) -> str:
    """One line; "" where there is none to name."""
    target = ["--target", result.target]
    if result.error is not None:
        return ""
    if not asked.is_script:
        verify = ["tpu-migrate", "verify", "train.py", *target, "--quick"]
        return f"your own program: {command_line(verify)}" if result.passed else ""
    if not isinstance(result, ScriptResult):  # compiled, not compared
        return ""
    file = _file(asked)
    if result.passed:
        migrate = ["tpu-migrate", file, *target, *_as_migrated(asked)]
        return f"migrate it in place (with -o DIR, a copy): {command_line(migrate)}"
    report = result.migration
    if result.problems and report is not None and any(report.diagnostics(Outcome.REPORTED)):
        left = ["tpu-migrate", "remaining", file, *target]
        return f"what is left to change by hand, with examples: {command_line(left)}"
    return ""


def _file(asked: VerifyArguments) -> str:
    name = str(asked.app)
    if not asked.module:
        return name
    base = Path(*name.split("."))
    return str(base / "__main__.py" if base.is_dir() else base.with_name(f"{base.name}.py"))


def _as_migrated(asked: VerifyArguments) -> list[str]:
    """The options that the copy was migrated with."""
    portable, unsafe = ["--portable"] * asked.portable, ["--unsafe"] * asked.unsafe
    return [*portable, *unsafe, *(["--shard", asked.shard] if asked.shard else [])]
