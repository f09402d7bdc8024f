"""One file to migrate for one target: what the facts about it are found from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.syntax.names import Names
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct
from migrator.diagnostics import SourceMap
from migrator.frameworks.framework import Framework
from migrator.options import Options
from migrator.targets import Target, TargetApi


@dataclass
class Task:
    """One file to migrate for one target."""

    names: Names
    flow: Flow
    source: SourceMap
    target: Target
    options: Options
    constructs: Sequence[Construct] = ()
    project: ProjectFacts | None = None
    framework: Framework = field(init=False)  # of the target
    api: TargetApi = field(init=False)  # of the target, as this file speaks of torch
