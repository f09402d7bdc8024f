"""Analyse: collect facts about a module, and the GPU constructs that need a decision."""

from __future__ import annotations

from hashlib import blake2b

from migrator.analysis import find_upgrades
from migrator.analysis.installed_versions import is_needed
from migrator.analysis.project.facts import ProjectFacts
from migrator.construct import Construct
from migrator.context import Context, write_for
from migrator.diagnostics import SourceMap
from migrator.frameworks import find_framework
from migrator.frameworks.framework import Framework
from migrator.options import Options
from migrator.pipeline.module import Module
from migrator.pipeline.module_facts import module_facts
from migrator.registry import vocabulary
from migrator.targets import Target, with_ranks


def analyse(
    module: Module, target: Target, options: Options, project: ProjectFacts | None
) -> tuple[Context, list[Construct]]:
    """The context that rules use for a module, and its constructs in the order of decisions."""
    framework = find_framework(target.framework)
    known = vocabulary(framework.name, options.replace)
    facts = module_facts(module.parsed, framework, known, project)
    versions, lists = dict(options.versions), target.environment.names
    constructs = [each for each in facts.constructs if is_needed(each, versions, lists)]
    context = Context(
        facts.names, facts.flow, SourceMap(module.text), target, options, constructs, project
    )
    context.distributed.own_ranks = facts.ranks
    # Decided first, because they replace the moves that other rules make.
    constructs[:0] = [Construct("model", "move", move) for move in context.training.shardings]
    if context.api.launches:
        if context.distributed.ranks or (project is not None and project.serves_ranks()):
            write_for(context, with_ranks(context.target))
    return context, constructs


def may_hold_constructs(source: bytes, target: Target, options: Options) -> bool:
    """A cheap test: False means that the file contains no construct."""
    framework = find_framework(target.framework)
    key = framework.name, options.replace, blake2b(source, digest_size=16).digest()
    if key not in _MAY_HOLD:
        if len(_MAY_HOLD) >= _MOST:
            _MAY_HOLD.clear()
        known = may_be_of(framework, source, options.replace)
        _MAY_HOLD[key] = known or find_upgrades.may_be_in(source)
    return _MAY_HOLD[key]


def may_be_of(
    framework: Framework, source: bytes, replaced: tuple[tuple[str, str], ...] = ()
) -> bool:
    """Whether a file may have constructs of a framework's own, judging by its words."""
    # without an import there is no name that rules handle, and no rule is loaded
    return framework.has_tokens(source) or (
        b"import" in source and vocabulary(framework.name, replaced).may_be_in(source)
    )


_MAY_HOLD: dict[tuple[str, tuple[tuple[str, str], ...], bytes], bool] = {}  # asked twice a run
_MOST = 2**16  # in a language server, each state of a file that is edited is another one
