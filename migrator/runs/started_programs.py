"""The programs of a project: the files that are started, each with what it imports."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.syntax.scripts import is_script
from migrator.formats import file_kinds
from migrator.pipeline.recursion_limit import room_for_depth
from migrator.runs.cross_file import is_code
from migrator.runs.worker import Worker


def started_programs(files: Collection[Path], worker: Worker) -> dict[Path, list[Path]]:
    """The files that are started, each with those of `files` that it imports, directly or not.

    All paths are resolved.
    """
    found: dict[Path, list[Path]] = {}
    with room_for_depth():
        for path in files:
            project = worker.project(path)
            if is_code(path) and (file_kinds.is_notebook(path) or _is_started(project)):
                found[path] = [path, *(other for other in project.reached() if other in files)]
    return found


def _is_started(project: ProjectFacts) -> bool:
    if project.has_main_guard() or project.is_started():
        return True
    facts = project.cache.facts(project.path)
    return facts is not None and is_script(facts.names) is None and not project.is_imported()
