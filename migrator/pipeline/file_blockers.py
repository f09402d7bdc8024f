"""Reasons to leave a whole file unchanged."""

from __future__ import annotations

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.values.flow import Flow
from migrator.construct import Construct
from migrator.context import Context
from migrator.decision import Report
from migrator.diagnostics import SourceMap
from migrator.formats.python_source import decode
from migrator.options import Options
from migrator.registry import Registry, registry
from migrator.targets import Target


def gate_of(context: Context, rules: Registry) -> tuple[str, Report] | None:
    """A reason to leave the whole file unchanged, with the code of its rule."""
    for rule, handler in rules.exact.get(("file", "gate"), ()):
        decision = handler(context, Construct("file", "gate", context.names.tree))
        if isinstance(decision, Report):
            return rule.code, decision
    if context.project is not None and context.project.held is not None:
        return registry().for_launched_code.code, context.project.held
    return None


def why_it_stays(context: Context) -> Report | None:
    """Why a file of a project stays unchanged; None if nothing prevents its migration."""
    gate = (
        None
        if context.file.is_native
        else gate_of(context, registry().of(context.target.framework))
    )
    return gate[1] if gate and not (gate[1].unsafe and context.options.unsafe) else None


def context_of(project: ProjectFacts, target: Target, options: Options) -> Context | None:
    """The context of a project file, without its constructs; None if it can't be parsed."""
    facts, source = project.cache.facts(project.path), project.reader.read(project.path)
    if facts is None or source is None:
        return None
    text = SourceMap(decode(source).text)
    flow = Flow(facts.names, project.kind)
    return Context(facts.names, flow, text, target, options, (), project)
