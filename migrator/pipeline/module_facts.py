"""Module facts: one module's meaning, given its imports, independent of the rewrites."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.devices.other_accelerators import Parsed
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.ranks.file_ranks import Ranks
from migrator.analysis.syntax.names import Names
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct
from migrator.frameworks.framework import Framework, ModuleView


@dataclass(frozen=True)
class ModuleFacts:
    """Names, kinds of values, ranks and GPU constructs of one module."""

    parsed: Parsed
    vocabulary: Vocabulary  # what counts as a construct
    names: Names
    flow: Flow
    ranks: Ranks
    constructs: Sequence[Construct]


def module_facts(
    parsed: Parsed, framework: Framework, vocabulary: Vocabulary, project: ProjectFacts | None
) -> ModuleFacts:
    """The facts of a module; those of a project's last module are cached.

    It is migrated again for --unsafe, or one rewrite at a time.
    """
    if project is None:
        return _facts(parsed, Names(parsed.tree), framework, vocabulary, None)
    known = project.cache.last
    if (
        not isinstance(known, ModuleFacts)
        or known.parsed is not parsed
        or known.vocabulary is not vocabulary
    ):
        file = project.cache.file(project.path)
        walked = file.facts.names if file.parsed is parsed and file.facts is not None else None
        names = (walked or Names(parsed.tree)).in_project(project.starred)
        project.cache.last = known = _facts(parsed, names, framework, vocabulary, project)
    return known


def _facts(
    parsed: Parsed,
    names: Names,
    framework: Framework,
    vocabulary: Vocabulary,
    project: ProjectFacts | None,
) -> ModuleFacts:
    flow = Flow(names, project.kind if project is not None else None)
    ranks = Ranks(names, flow)
    relative = any(isinstance(i, ast.ImportFrom) and i.level for i in names.imports)
    package = project.package() if project is not None and vocabulary.own and relative else ""
    view = ModuleView(names, flow, vocabulary, package, project, ranks)
    constructs = framework.constructs(view)
    return ModuleFacts(parsed, vocabulary, names, flow, ranks, constructs)
