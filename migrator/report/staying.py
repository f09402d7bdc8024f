"""Programs that stay as they are: what is in the way of each, and what depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.decision import Report as Gate
from migrator.diagnostics import Diagnostic, Outcome
from migrator.files.user_folders import resolved
from migrator.registry import registry
from migrator.report.statistics import count_noun
from migrator.runs.run_report import FileReport, Report

Found = tuple[Path, Diagnostic]


@dataclass(frozen=True)
class SharedObstacle:
    """A line in the way, and the constructs that depend on it."""

    path: Path
    line: int
    reason: str
    kept: Sequence[Found]

    @property
    def constructs(self) -> int:
        return len(self.kept)

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Staying:
    """A program that is left with all its files; the obstacle of most constructs is first."""

    files: Sequence[Path]
    obstacles: Sequence[SharedObstacle]
    unsafe: bool  # --unsafe rewrites it

    @property
    def constructs(self) -> int:
        return sum(obstacle.constructs for obstacle in self.obstacles)

    @property
    def keeps(self) -> str:
        """What depends on the obstacles."""
        files = f" in {count_noun(len(self.files), 'file')}" if len(self.files) > 1 else ""
        return f"keeps {count_noun(self.constructs, 'construct')}{files}"

    @property
    def furthest(self) -> str:
        """The option that gets further than this run."""
        if self.unsafe:
            return "--unsafe rewrites this program, which may change results"
        return "`tpu-migrate assess PATH` says how far each target gets"


def staying(report: Report) -> tuple[list[Staying], list[Found]]:
    """The programs of a run that stay, and the remaining manual work besides them."""
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
    read = (file.path for file in report.files if not file.result.failed)
    shown = {resolved(path): path for path in read}
    programs = [_program(group, kept, shown) for group in _connected(files)]
    return programs, others


def _connected(files: Sequence[FileReport]) -> list[list[FileReport]]:
    """Files that name one another, or the same file, as the reason for staying."""
    groups: dict[Path, list[FileReport]] = {}  # by their files, and those that they name
    for file in files:
        gate = _gate(file)
        keys = {resolved(file.path), *gate.files}
        if gate.obstacle is not None and gate.obstacle.path is not None:
            keys.add(gate.obstacle.path)
        joined = {id(groups[key]): groups[key] for key in keys if key in groups}
        group = [*(each for found in joined.values() for each in found), file]
        keys |= {key for key, found in groups.items() if id(found) in joined}
        groups |= dict.fromkeys(keys, group)
    return list({id(group): group for group in groups.values()}.values())


def _gate(file: FileReport) -> Gate:
    assert file.result.gate is not None
    return file.result.gate


def _program(
    files: Sequence[FileReport], kept: dict[Path, list[Diagnostic]], shown: dict[Path, Path]
) -> Staying:
    hang: dict[tuple[Path, int, str], list[Found]] = {}
    for file in files:
        obstacle = _gate(file).obstacle
        for d in kept[file.path]:
            if obstacle is None:
                where = file.path, d.range.line, d.message
            else:
                there = shown.get(obstacle.path, obstacle.path) if obstacle.path else file.path
                where = there, obstacle.line, obstacle.reason
            hang.setdefault(where, []).append((file.path, d))
    most = sorted(hang.items(), key=lambda item: -len(item[1]))
    obstacles = [SharedObstacle(*where, found) for where, found in most]
    unsafe = all(_gate(file).unsafe for file in files)
    return Staying(sorted(file.path for file in files), obstacles, unsafe)
