"""Programs that stay as they are: what is in the way of each, and what hangs on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.diagnostics import Diagnostic, Outcome
from migrator.registry import registry
from migrator.report.statistics import counted
from migrator.run_report import FileReport, Report

Found = tuple[Path, Diagnostic]
# How a gate ends that has found a line which the target can not do: its file may be another one.
_BECAUSE = re.compile(r".*because (?P<reason>.*) \((?:(?P<file>[^()]+), )?line (?P<line>\d+)\)\Z")
_FILE = re.compile(r"[\w./-]+\.(?:py|ipynb)\b")


@dataclass(frozen=True)
class Obstacle:
    """A line that is in the way, and how many constructs hang on it."""

    path: Path
    line: int
    reason: str
    constructs: int

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Staying:
    """A program that is left with all its files; what most constructs hang on is first."""

    files: Sequence[Path]
    obstacles: Sequence[Obstacle]
    unsafe: bool  # --unsafe rewrites it

    @property
    def constructs(self) -> int:
        return sum(obstacle.constructs for obstacle in self.obstacles)

    @property
    def keeps(self) -> str:
        """What hangs on the obstacles."""
        files = f" in {counted(len(self.files), 'file')}" if len(self.files) > 1 else ""
        return f"keeps {counted(self.constructs, 'construct')}{files}"

    @property
    def furthest(self) -> str:
        """What gets further than this run."""
        if self.unsafe:
            return "--unsafe rewrites this program, which may change results"
        return "`tpu-migrate assess PATH` says how far each target gets"


def staying(report: Report) -> tuple[list[Staying], list[Found]]:
    """The programs of a run that stay, and what is left for a person beside them."""
    code = registry().for_launched_code.code
    held = [file for file in report.files if file.result.gate is not None]
    paths = {file.path for file in held}
    kept: dict[Path, list[Diagnostic]] = {}
    others: list[Found] = []
    for path, diagnostic in report.diagnostics(Outcome.REPORTED):
        if diagnostic.code == code and path in paths:
            kept.setdefault(path, []).append(diagnostic)
        else:
            others.append((path, diagnostic))
    files = [file for file in held if file.path in kept]
    known = [file.path for file in report.files]
    programs = [_program(group, kept, known) for group in _connected(files, kept, known)]
    return programs, others


def _connected(
    files: Sequence[FileReport], kept: dict[Path, list[Diagnostic]], known: Sequence[Path]
) -> list[list[FileReport]]:
    """Files that name one another, or the same one, as the reason why they stay."""
    groups: dict[Path, list[FileReport]] = {}  # by their files, and those that they name
    for file in files:
        said = {name for d in kept[file.path] for name in _FILE.findall(d.message)}
        meant = filter(None, (_meant(name, file.path, known) for name in said))
        keys = {file.path, *meant}
        joined = {id(groups[key]): groups[key] for key in keys if key in groups}
        group = [*(each for found in joined.values() for each in found), file]
        keys |= {key for key, found in groups.items() if id(found) in joined}
        groups |= dict.fromkeys(keys, group)
    return list({id(group): group for group in groups.values()}.values())


def _meant(name: str, beside: Path, known: Sequence[Path]) -> Path | None:
    """The file that a message names: the one beside its own file, or the only one."""
    if (near := beside.parent / name) in known:
        return near
    ends = Path(name).parts
    found = [path for path in known if path.parts[-len(ends) :] == ends]
    return found[0] if len(found) == 1 else None


def _program(
    files: Sequence[FileReport], kept: dict[Path, list[Diagnostic]], known: Sequence[Path]
) -> Staying:
    own = [file.path for file in files]
    hang: Counter[tuple[Path, int, str]] = Counter()
    for path in own:
        for diagnostic in kept[path]:
            hang[_obstacle(path, diagnostic, known)] += 1
    obstacles = [Obstacle(*where, count) for where, count in hang.most_common()]
    unsafe = all(file.result.gate is not None and file.result.gate.unsafe for file in files)
    return Staying(sorted(own), obstacles, unsafe)


def _obstacle(path: Path, found: Diagnostic, known: Sequence[Path]) -> tuple[Path, int, str]:
    match = _BECAUSE.match(found.message)
    if match is None:
        return path, found.range.line, found.message
    named = match["file"]
    where = _meant(named, path, known) or Path(named) if named else path
    return where, int(match["line"]), match["reason"]
