"""What becomes of a name from a GPU program, as `tpu-migrate explain torch.cuda.Stream` asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from migrator.diagnostics import Diagnostic, Outcome
from migrator.errors import UsageError
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.registry import registry
from migrator.targets import targets

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_TENSOR = ("torch.Tensor.", "Tensor.", "tensor.")
_MODULE = ("torch.nn.Module.", "nn.Module.", "module.")


def is_name(text: str) -> bool:
    """Whether it is a dotted name, as of a function or a method."""
    return _NAME.fullmatch(text) is not None


def explain_name(name: str) -> str:
    """What each target makes of a call of it, as Markdown: what is written, or why nothing is.

    Raises:
        UsageError: it is no GPU construct on any target.
    """
    answers: dict[str, list[str]] = {}
    codes: set[str] = set()
    for target in targets():
        source = _program(name)
        result = migrate_file(Path("example.py"), source.encode(), targets()[target], Options())
        before, after = source.splitlines()[-1], result.source.decode().splitlines()[-1]
        every = [d for d in result.diagnostics if d.outcome is not None]
        found = [d for d in every if d.range.line == source.count("\n")] or every
        for line in _answer(found, after if after != before else ""):
            answers.setdefault(line, []).append(target)
        codes.update(d.code for d in found)
    if not answers:
        raise UsageError(f"{name} is no GPU construct that tpu-migrate knows: it stays as it is")
    rules = registry().rules
    more = ", ".join(f"{code} ({rules[code].name})" for code in sorted(codes) if code in rules)
    lines = [f"* {', '.join(names)}: {answer}" for answer, names in answers.items()]
    return "\n".join((f"# {name}", "", *lines, "", f"`tpu-migrate explain CODE` has more: {more}"))


def _program(name: str) -> str:
    """A program whose last line calls it."""
    for start, owner in ((_TENSOR, "torch.ones(2)"), (_MODULE, "torch.nn.Linear(2, 2)")):
        for prefix in start:
            if name.startswith(prefix):
                return f"import torch\n\nx = {owner}\nprint(x.{name.removeprefix(prefix)}())\n"
    root = name.partition(".")[0]
    return f"import {root}\n\nprint({name}())\n"


def _answer(found: list[Diagnostic], after: str) -> Iterator[str]:
    for diagnostic in dict.fromkeys((d.code, d.outcome, d.message) for d in found):
        code, outcome, message = diagnostic
        said = f": {message}" if message else ""
        if outcome is Outcome.REWRITTEN and after:
            yield f"rewritten ({code}), `{after.strip()}`{said}"
        else:
            yield f"{outcome} ({code}){said}"
