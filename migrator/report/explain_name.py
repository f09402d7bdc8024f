"""What becomes of a name from a GPU program, as `tpu-migrate explain torch.cuda.Stream` asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from migrator.analysis.find_absent_names import near
from migrator.diagnostics import Diagnostic, Outcome
from migrator.errors import UsageError
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.registry import registry
from migrator.targets import targets

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_TENSOR = ("torch.Tensor.", "Tensor.", "tensor.")
_MODULE = ("torch.nn.Module.", "nn.Module.", "module.")


def is_name(text: str) -> bool:
    """Whether it is a name, as of a function, a method or a library."""
    return _NAME.fullmatch(text) is not None


def explain_name(name: str) -> str:
    """What each target makes of a call of it, as Markdown: what is written, or why nothing is.

    Raises:
        UsageError: it is no GPU construct on any target.
    """
    meant = _meant(name)
    answers: dict[str, list[str]] = {}
    codes: set[str] = set()
    lines = _program(name)
    source = "".join(f"{line}\n" for line in lines).encode()
    for target_name, target in targets().items():
        result = migrate_file(Path("example.py"), source, target, Options())
        after = result.source.decode().splitlines()[-1]
        every = [d for d in result.diagnostics if d.outcome is not None]
        found = [d for d in every if d.range.line == len(lines)] or every
        for answer in _answer(found, after if after != lines[-1] else ""):
            answers.setdefault(answer, []).append(target_name)
        codes.update(d.code for d in found)
    if not answers:
        ends = meant or ": it stays as it is; tpu-migrate rules lists all codes"
        raise UsageError(f"{name} is no GPU construct that tpu-migrate knows{ends}")
    rules = registry().rules
    more = ", ".join(f"{code} ({rules[code].name})" for code in sorted(codes) if code in rules)
    said = [f"PyTorch has no {name}{meant}\n"] if meant and "." in name else []
    said += [f"* {', '.join(names)}: {answer}" for answer, names in answers.items()]
    return "\n".join((f"# {name}", "", *said, "", f"`tpu-migrate explain CODE` has more: {more}"))


def _meant(name: str) -> str:
    """Names that PyTorch has, where it has none of this name."""
    found = near(name if "." in name else f"torch.cuda.{name}")
    return f"; did you mean {' or '.join(found)}?" if found and name not in found else ""


def _program(name: str) -> list[str]:
    """The lines of a program; the last one calls it."""
    for start, owner in ((_TENSOR, "torch.ones(2)"), (_MODULE, "torch.nn.Linear(2, 2)")):
        for prefix in start:
            if name.startswith(prefix):
                method = name.removeprefix(prefix)
                return ["import torch", "", f"x = {owner}", f"print(x.{method}())"]
    return [f"import {name.partition('.')[0]}", "", f"print({name}())"]


def _answer(found: list[Diagnostic], after: str) -> Iterator[str]:
    for code, outcome, message in dict.fromkeys((d.code, d.outcome, d.message) for d in found):
        said = f": {message}" if message else ""
        if outcome is Outcome.REWRITTEN and after:
            yield f"rewritten ({code}), `{after.strip()}`{said}"
        else:
            yield f"{outcome} ({code}){said}"
