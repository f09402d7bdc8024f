"""Files whose lines stand for themselves: shell scripts, requirements, configurations."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.diagnostics import Range
from migrator.formats.embedded import COMMAND, REQUIREMENT, SETTING, call, restored

_SHELL = re.compile(
    r".*\.(?:sh|bash|slurm|sbatch|mk)|Dockerfile.*|.*\.[Dd]ockerfile|(?:GNUm|[Mm])akefile"
)
_CONFIGURATION = re.compile(
    r"(?:^|[_.-])(?:conf\w*|settings?|options?|params?|args|hparams?|experiments?)(?:$|[_.-])", re.I
)
_REQUIREMENTS = re.compile(r"requirements[\w.-]*\.(?:txt|in)|pyproject\.toml|setup\.cfg")


def kind(path: Path) -> str | None:
    """What a line of such a file is; None for other files."""
    if _SHELL.fullmatch(path.name):
        return COMMAND
    if _REQUIREMENTS.fullmatch(path.name):
        return REQUIREMENT
    if path.suffix in (".yaml", ".yml", ".json"):
        return SETTING
    if path.parent.name == "requirements" and path.suffix in (".txt", ".in"):
        return REQUIREMENT
    return None


def is_data(path: Path) -> bool:
    """JSON mostly is, which may be many files: only a name tells that it is a configuration."""
    return path.suffix == ".json" and not any(
        map(_CONFIGURATION.search, (path.stem, path.parent.name))
    )


@dataclass(frozen=True)
class Lines:
    """The text's lines; one that goes on in the next is one with it."""

    function: str  # what a line is
    lines: tuple[str, ...]

    @property
    def module(self) -> str:
        return "".join(f"{call(self.function, line)}\n" for line in self.lines)

    def with_module(self, module: str) -> str:
        found = module.removesuffix("\n").split("\n")
        if len(found) != len(self.lines):
            raise ValueError("a line is missing")
        return "\n".join(restored(line) for line in found)

    def located(self, where: Range) -> Range:
        first = 1 + sum(line.count("\n") + 1 for line in self.lines[: where.line - 1])
        line = self.lines[where.line - 1]
        column = len(line) - len(line.lstrip()) + 1
        *above, last = line.split("\n")
        end_column = len(last) + 1 if above else column
        end_line = first + len(above)
        return replace(where, line=first, column=column, end_line=end_line, end_column=end_column)


def read(content: bytes, function: str) -> Lines:
    """Raises UnicodeDecodeError."""
    return Lines(function, split(content.decode("utf-8"), continued=function != SETTING))


def split(text: str, *, continued: bool) -> tuple[str, ...]:
    """Lines; where they may be `continued`, one that ends in a backslash goes on in the next."""
    lines: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        if goes_on:
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
        goes_on = (
            continued and line.rstrip("\r").endswith("\\") and not line.lstrip().startswith("#")
        )
    return tuple(lines)
