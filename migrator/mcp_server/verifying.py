"""What the tools do that run a program of the project: only if the server may."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context

from migrator.errors import UsageError

from .roots import Roots
from .running import in_child

_FAILED = 20  # values that differ, of which the result names as many


@dataclass(frozen=True)
class VerificationRequest:
    """A script, and how it is started."""

    script: str
    target: str  # "" where it only runs as it is
    arguments: Sequence[str]
    timeout: float  # seconds of each run


async def verify_in(
    context: Context[Any, Any],
    roots: Roots,
    allow_run: bool,
    asked: VerificationRequest,
    options: Sequence[str],
    golden: str | None = None,
) -> dict[str, Any]:
    """What `tpu-migrate verify SCRIPT --json` says, in the root that holds the script."""
    script, top = _script(roots, allow_run, asked)
    given = [script, "--target", asked.target, "--json", *options]
    given += ["--golden", str(roots.find(golden))] if golden is not None else []
    return _shortened(json.loads(await _run(context, "verify", given, asked, top)))


async def record_in(
    context: Context[Any, Any],
    roots: Roots,
    allow_run: bool,
    asked: VerificationRequest,
    output: str,
    layers: bool,
) -> str:
    """What `tpu-migrate record SCRIPT -o OUTPUT` says."""
    script, top = _script(roots, allow_run, asked)
    given = [script, "-o", str(roots.find_new(output, top)), *["--layers"] * layers]
    return await _run(context, "record", given, asked, top)


def _script(roots: Roots, allow_run: bool, asked: VerificationRequest) -> tuple[str, Path]:
    """The script, and the root that it begins at. Raises UsageError, also where none may run."""
    if not allow_run:
        raise UsageError(
            "this server runs nothing of the project: whoever started it has to start it with "
            "--allow-run (`tpu-migrate mcp --allow-run`)"
        )
    script = roots.find(asked.script)
    top = roots.root_of(script)
    return f"./{script.relative_to(top).as_posix()}", top


async def _run(
    context: Context[Any, Any],
    command: str,
    given: Sequence[str],
    asked: VerificationRequest,
    top: Path,
) -> str:
    words = [command, *given, "--timeout", str(asked.timeout), "--", *asked.arguments]
    return await in_child(context, words, top)


def _shortened(found: dict[str, Any]) -> dict[str, Any]:
    """The result without the values that agree, of which there are thousands."""
    for part in ("stepwise", "compiled"):
        if isinstance(found.get(part), dict):
            findings = found[part].pop("findings")
            failed = sorted((f for f in findings if f["reason"]), key=lambda f: f["order"])
            found[part] |= {"compared": len(findings), "differ": len(failed)}
            found[part]["first_that_differ"] = failed[:_FAILED]
    return found
