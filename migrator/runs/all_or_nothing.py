"""Programs that stay whole: if one file stays, so do all that run together with it.

A program with half of its files rewritten would have tensors on two devices, or use device names
that its other half does not know. So the imports of a file that stays stay as well, and so does
each program that reaches its device code. A file shared with other programs is still rewritten for
them if the program that stays does not reach anything that changes in it.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.analysis.devices.other_accelerators import imported_heads
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.file_facts import File
from migrator.decision import Report
from migrator.diagnostics import START
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.file_blockers import context_of, why_it_stays
from migrator.pipeline.result import Result
from migrator.pipeline.suppress import Suppressions
from migrator.registry import registry
from migrator.targets import Target

_EXCLUDED = Report("the configuration excludes it, and it has GPU code")
_IGNORED = Report("a comment keeps it as it is, and it has GPU code")
_LINE = re.compile(r"(?<!\.py, )\bline (\d+)")


def kept_whole(
    results: Mapping[Path, Result],
    project: Callable[[Path], ProjectFacts],
    target: Target,
    options: Options,
    is_excluded: Callable[[Path], bool],
) -> dict[Path, Report]:
    """The files that stay because another file does, each with the reason.

    Args:
        results: the result of each file of the run, migrated by itself.
        project: the facts of a file.
        is_excluded: whether the configuration excludes a file; if it would change, so may not those
            that reach what would.

    Files outside of the run count, too, if they are imported, or lie beside those of the run or
    above them.
    """
    if not any(result.migrated for result in results.values()):
        return {}
    known = {resolved(path): result for path, result in results.items() if not result.failed}
    around = _Around(known, project, target, options, is_excluded)
    found: dict[Path, Report] = {}
    queue = deque((path, path, path) for path in around.stay)
    queued = set(around.stay)  # whatever is found to connect it later, too
    while queue:
        path, through, first = queue.popleft()
        if path not in around.stay:
            found[path] = around.reason(path, through, first)
        reached = around.facts[path].reached()
        own = {path, *reached}
        for imported in (each for each in reached if each not in queued):
            shared = not own.issuperset(around.importers.get(imported, ()))
            if not shared or around.gets_to_changes(path, imported):
                queued.add(imported)
                queue.append((imported, path, first))
        if not around.uses_device(path):
            continue
        for importer in around.importers.get(path, ()):
            if importer not in queued and around.gets_to_changes(importer, path):
                queued.add(importer)
                queue.append((importer, path, first))
    return found


class _Around:
    """The files of some programs, and the facts of each."""

    def __init__(
        self,
        known: Mapping[Path, Result],
        project: Callable[[Path], ProjectFacts],
        target: Target,
        options: Options,
        is_excluded: Callable[[Path], bool],
    ) -> None:
        self.known, self.target, self.options = known, target, options
        self._is_excluded = is_excluded
        self._results: dict[Path, Result] = {}  # of files that are not part of the run
        self._reached: set[Path] = set()  # by the files of the run
        self.facts: dict[Path, ProjectFacts] = {}
        self._find(project)
        self.importers: dict[Path, list[Path]] = {}
        self.stay: dict[Path, Report] = {}
        self._changes: dict[Path, Sequence[ast.AST] | None] = {}
        for path, there in sorted(self.facts.items()):
            gate = self._gate(there)
            if gate is not None and (gate is _IGNORED or not self._stands_alone(path)):
                self.stay[path] = gate
        for path, there in sorted(self.facts.items()) if self.stay else ():
            for imported in there.reached():
                self.importers.setdefault(imported, []).append(path)

    def _find(self, project: Callable[[Path], ProjectFacts]) -> None:
        """Collect the files of the run and those around them."""
        for path in self.known:
            if path.suffix in (".py", file_kinds.NOTEBOOK):
                self.facts[path] = project(path)
        for there in {path.parent: there for path, there in self.facts.items()}.values():
            for path in there.modules_above():
                self.facts.setdefault(path, there.of(path))
        for there in list(self.facts.values()):
            for path in there.reached():
                self.facts.setdefault(path, there.of(path))
            if there.path in self.known:
                self._reached |= there.reached()

    def _gate(self, there: ProjectFacts) -> Report | None:
        result = self.known.get(there.path)
        if result is not None:
            is_part = there.path in self._reached and _is_ignored(result)
            return _IGNORED if result.gate is None and is_part else result.gate
        if there.path in self._reached and self._is_left(there):
            return _EXCLUDED
        if not any(map(there.cache.distributes, (there.path, *there.reached()))):
            return None
        context = context_of(there, self.target, self.options)
        return why_it_stays(context) if context is not None else None

    def _is_left(self, there: ProjectFacts) -> bool:
        """Whether a file is excluded, but would change."""
        path = there.path
        if not self._is_excluded(path) or not there.cache.uses_device(path):
            return False
        return self._migrated(there).changed

    def _migrated(self, there: ProjectFacts) -> Result:
        """The result of a file that is not part of the run."""
        path = there.path
        if path not in self._results:
            source = there.reader.read(path) or b""
            self._results[path] = migrate_file(path, source, self.target, self.options, there)
        return self._results[path]

    def _stands_alone(self, path: Path) -> bool:
        """Whether a file may stay alone: a test, or one with a comment that says so."""
        if self.facts[path].cache.places.is_test(path):
            return True
        result = self.known.get(path)
        source = self.facts[path].reader.read(path) if result is None else result.original
        codes = self.options.in_file(path).suppress
        if source is None or not (codes or b"ignore-file" in source):
            return False
        suppressions = Suppressions(source.decode("utf-8", "replace"), codes)
        return suppressions.covers(START, registry().for_launched_code.code)

    def uses_device(self, path: Path) -> bool:
        result = self.known.get(path)
        return self.facts[path].cache.uses_device(path) if result is None else result.uses_device

    def gets_to_changes(self, path: Path, imported: Path) -> bool:
        """Whether a file reaches code that would change in a file that it imports."""
        if imported not in self._changes:
            self._changes[imported] = self._changed(imported)
        changes = self._changes[imported]
        if changes is None:
            return True
        return any(self.facts[path].code_reaches(imported, node) for node in changes)

    def _changed(self, path: Path) -> Sequence[ast.AST] | None:
        """The statements that migrating a file changes; None if it may be any.

        A new import changes the top of the module, which every user of the file reaches.
        """
        there, result = self.facts[path], self.known.get(path)
        facts = there.cache.facts(path)
        stays = self.stay.get(path, _EXCLUDED) is not _EXCLUDED
        if stays or facts is None or path.suffix != ".py":
            return None
        if result is None:
            result = self._migrated(there)
        if not _imported(result.source) <= _imported(result.original):
            return None
        lines = {
            line
            for found in result.diagnostics
            if found.is_edit
            for part in (found.range, *found.touched)
            for line in range(part.line, part.end_line + 1)
        }
        return [node for node in facts.names.order if lines.intersection(_lines(node))]

    def reason(self, path: Path, through: Path, first: Path) -> Report:
        """Why a file stays: the file that stays by itself, and the one that connects the two."""
        gate = self.stay[first]
        root = self.facts[first].root
        name = first.relative_to(root).as_posix() if first.is_relative_to(root) else first.name
        why = _LINE.sub(rf"{first.name}, line \1", gate.reason)
        if path in self.facts[first].reached():
            reason = f"{name} imports this file, and a program stays whole: {why}"
        elif through == first:
            reason = f"imports {name}, and a program stays whole: {why}"
        else:
            reason = f"shares {through.name} with {name}, and a program stays whole: {why}"
        obstacle = gate.obstacle
        if obstacle is not None and obstacle.path is None:
            obstacle = replace(obstacle, path=first)
        return replace(gate, reason=reason, obstacle=obstacle, files=(first, through))


def _is_ignored(result: Result) -> bool:
    """Whether a comment switches all rules off in a file that would change."""
    if b"ignore-file" not in result.original:
        return False
    ignores = Suppressions(result.original.decode("utf-8", "replace")).file == ()
    return ignores and any(found.is_suppressed for found in result.diagnostics)


def _imported(source: bytes) -> set[str]:
    """The packages that a file imports."""
    facts = File(source, DEVICE_CONSTRUCTS).facts
    return {head for i in facts.names.imports for head in imported_heads(i)} if facts else set()


def _lines(node: ast.AST) -> range:
    """The lines of a statement, without those of nested statements."""
    if not isinstance(node, ast.stmt):
        return range(0)
    body: list[ast.stmt] = getattr(node, "body", [])
    end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return range(node.lineno, max(end, node.lineno) + 1)
