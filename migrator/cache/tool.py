"""The tool's own state: what a result depends on besides its input files.

A version isn't enough: in a checkout the rules change without one. So the state of every file of
the tool counts, of each folder with installed packages, and of packages that provide rules.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from migrator.files.states import Answer, State, modules, state_of
from migrator.plugins import entry_point_files, installed

_RULES = "migrator.rules"
GROUPS = ("tpu_migrate.rules", "tpu_migrate.targets", "tpu_migrate.frameworks")


def as_it_is() -> tuple[dict[str, State], list[Answer]]:
    """The states of the tool's files and of packages installed with it; and which files exist."""
    folders = [folder for folder in sys.path if os.path.realpath(folder) != os.getcwd()]
    states = {folder: state_of(folder) for folder in folders}
    for folder in folders:
        states.update((file, state_of(file)) for file in entry_point_files(folder))
    answers: list[Answer] = []
    for package in ("migrator", _RULES, *sorted(_packages_with_plugins())):
        _look_at(package, states, answers)
    return states, answers


def _packages_with_plugins() -> set[str]:
    points = (point for group in GROUPS for point in installed(group))
    return {point.value.partition(":")[0].partition(".")[0] for point in points}


def _look_at(package: str, states: dict[str, State], answers: list[Answer]) -> None:
    spec = find_spec(package)
    if spec is None:
        return
    places = list(spec.submodule_search_locations or ())
    if not places and spec.origin:
        states[spec.origin] = state_of(spec.origin)
    for place in places:
        for at, folders, files in os.walk(place):
            folders[:] = [name for name in folders if name != "__pycache__"]
            answers.append(("modules", at, modules(at)))
            for name in files:
                states[os.path.join(at, name)] = state_of(os.path.join(at, name))
