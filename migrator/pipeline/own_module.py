"""A project's own module by the name of the runtime, which would hide it, or be hidden."""

from __future__ import annotations

from migrator.analysis.project.facts import ProjectFacts
from migrator.files.discover import bundled_target
from migrator.targets import RUNTIME


def own_module(project: ProjectFacts) -> str | None:
    """The name of such a module or package, for a file that would import the runtime."""
    if project.path.name == f"{RUNTIME}.py":
        return project.path.name
    found = project.resolve(RUNTIME)
    if found is None or found.name != "__init__.py":
        return found.name if found is not None else None
    ours = bundled_target(found.parent, lambda path: project.reader.read(path) or b"")
    return None if ours is not None else found.parent.name
