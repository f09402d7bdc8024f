"""Module facts: what one module means with the facts of what it imports, whatever is done to it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.analysis import inventory
from migrator.analysis.accelerators import Parsed
from migrator.analysis.children import Children
from migrator.analysis.facts import ProjectFacts
from migrator.analysis.flow import Flow
from migrator.analysis.names import Names
from migrator.analysis.ranks import Ranks
from migrator.construct import Construct
from migrator.vocabulary import Vocabulary


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
    parsed: Parsed, vocabulary: Vocabulary, project: ProjectFacts | None
) -> ModuleFacts:
    """The facts of a module; those of the last one of a project are kept.

    It is migrated again with --unsafe, or one rewrite at a time.
    """
    if project is None:
        return _facts(parsed, Names(parsed.tree), vocabulary, None)
    known = project.cache.last
    if known is None or known.parsed is not parsed or known.vocabulary is not vocabulary:
        file = project.cache.file(project.path)
        walked = file.facts.names if file.parsed is parsed and file.facts is not None else None
        names = (walked or Names(parsed.tree)).in_project(project.starred)
        known = project.cache.last = _facts(parsed, names, vocabulary, project)
    return known


def _facts(
    parsed: Parsed, names: Names, vocabulary: Vocabulary, project: ProjectFacts | None
) -> ModuleFacts:
    flow = Flow(names, project.kind if project is not None else None)
    ranks = Ranks(names, flow)
    relative = any(isinstance(i, ast.ImportFrom) and i.level for i in names.imports)
    package = project.package() if project is not None and vocabulary.own and relative else ""
    constructs = list(inventory.find(names, flow, vocabulary, package, ranks))
    constructs += Children(names, flow, constructs, project).constructs()
    return ModuleFacts(parsed, vocabulary, names, flow, ranks, constructs)
