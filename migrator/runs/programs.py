"""Programs that stay whole: where one file stays, so do all that run together with it.

A program with half of its files rewritten would have tensors on two devices, or names of devices
that its other half does not know. So what a file that stays imports stays, too, and so does each
program that shares a file for a device with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.reach import is_test
from migrator.decision import Report
from migrator.diagnostics import START
from migrator.formats import kinds
from migrator.options import Options
from migrator.pipeline.gates import context_of, why_it_stays
from migrator.pipeline.result import Result
from migrator.pipeline.suppress import Suppressions
from migrator.registry import registry
from migrator.targets import Target

_LINE = re.compile(r"(?<!\.py, )\bline (\d+)")


def held(
    results: Mapping[Path, Result],
    project: Callable[[Path], ProjectFacts],
    target: Target,
    options: Options,
) -> dict[Path, Report]:
    """The files that stay because another one does: each with the reason.

    Args:
        results: what became of the files of a run, each by itself.
        project: the facts of a file.

    Files that are no part of the run are taken into account where they are beside those of the run
    or above them, or are imported.
    """
    if not any(result.migrated for result in results.values()):
        return {}
    known = {path.resolve(): result for path, result in results.items() if not result.failed}
    around = _Around(known, project, target, options)
    found: dict[Path, Report] = {}
    queue = [(path, path, path) for path in around.stay]
    seen: set[Path] = set()
    while queue:
        path, through, first = queue.pop(0)
        if path in seen:
            continue
        seen.add(path)
        if path not in around.stay:
            found[path] = around.reason(path, through, first)
        queue += ((imported, path, first) for imported in around.facts[path].reached())
        if around.uses_device(path):
            queue += ((importer, path, first) for importer in around.importers.get(path, ()))
    return found


class _Around:
    """The files of some programs, and what is known of each by itself."""

    def __init__(
        self,
        known: Mapping[Path, Result],
        project: Callable[[Path], ProjectFacts],
        target: Target,
        options: Options,
    ) -> None:
        self.known, self.target, self.options = known, target, options
        self.facts: dict[Path, ProjectFacts] = {}
        self._find(project)
        self.importers: dict[Path, list[Path]] = {}
        self.stay: dict[Path, Report] = {}
        for path, there in sorted(self.facts.items()):
            gate = self._gate(there)
            if gate is not None and not self._stands_alone(path):
                self.stay[path] = gate
        for path, there in sorted(self.facts.items()) if self.stay else ():
            for imported in there.reached():
                self.importers.setdefault(imported, []).append(path)

    def _find(self, project: Callable[[Path], ProjectFacts]) -> None:
        """The files of the run, and others around them."""
        for path in self.known:
            if path.suffix in (".py", kinds.NOTEBOOK):
                self.facts[path] = project(path)
        for there in {path.parent: there for path, there in self.facts.items()}.values():
            for path in there.modules_above():
                self.facts.setdefault(path, there.of(path))
        for there in list(self.facts.values()):
            for path in there.reached():
                self.facts.setdefault(path, there.of(path))

    def _gate(self, there: ProjectFacts) -> Report | None:
        result = self.known.get(there.path)
        if result is not None:
            return result.gate
        if not any(map(there.cache.distributes, (there.path, *there.reached()))):
            return None
        context = context_of(there, self.target, self.options)
        return why_it_stays(context) if context is not None else None

    def _stands_alone(self, path: Path) -> bool:
        """Whether no other file has to stay with one that stays: a test, or as a comment says."""
        if is_test(path, self.facts[path].cache.file(path).content):
            return True
        result = self.known.get(path)
        source = self.facts[path].reader.read(path) if result is None else result.original
        if source is None or b"ignore-file" not in source:
            return False
        return Suppressions(source.decode("utf-8", "replace")).covers(
            START, registry().for_launched_code.code
        )

    def uses_device(self, path: Path) -> bool:
        result = self.known.get(path)
        return self.facts[path].cache.uses_device(path) if result is None else result.uses_device

    def reason(self, path: Path, through: Path, first: Path) -> Report:
        """Why a file stays: a file that stays by itself, and another one that connects the two."""
        gate = self.stay[first]
        root = self.facts[first].root
        name = first.relative_to(root).as_posix() if first.is_relative_to(root) else first.name
        why = _LINE.sub(rf"{first.name}, line \1", gate.reason)
        if path in self.facts[first].reached():
            reason = f"{name} imports this file, and a program stays whole: {why}"
        else:
            reason = f"shares {through.name} with {name}, and a program stays whole: {why}"
        obstacle = gate.obstacle
        if obstacle is not None and obstacle.path is None:
            obstacle = replace(obstacle, path=first)
        return replace(gate, reason=reason, obstacle=obstacle, files=(first, through))
