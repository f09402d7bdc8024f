"""Decide, complete, write: the migration of one parsed module with a set of rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migrator.analysis.devices.other_accelerators import imported_heads
from migrator.analysis.syntax.nodes import statements
from migrator.codes import IDLE, INTERNAL, OTHERS
from migrator.construct import Construct
from migrator.context import Context
from migrator.diagnostics import START, Diagnostic, Severity
from migrator.edits import join_edits
from migrator.pipeline.advice import KIND as ADVISED
from migrator.pipeline.advice import advise
from migrator.pipeline.complete import complete
from migrator.pipeline.decide import decide
from migrator.pipeline.diagnose import account
from migrator.pipeline.module import Module
from migrator.pipeline.plan import restrict, withdraw
from migrator.pipeline.result import MigrationFailure, Result
from migrator.pipeline.suppress import Suppressions
from migrator.pipeline.write import NotPlaced, write
from migrator.registry import Registry, registry
from migrator.targets import RUNTIME

_IMPORTS = (ast.Import, ast.ImportFrom)


def rewrite(
    module: Module, context: Context, rules: Registry, constructs: Sequence[Construct]
) -> Result:
    """The result for a module, with one decision for each of its constructs."""
    suppressions = Suppressions(module.text, context.options.suppress)
    plan = decide(context, rules, constructs, suppressions)
    if context.options.only is not None:
        restrict(plan, context.names, context.options.only)
    advice = [*advise(context, rules, plan, suppressions)]
    written = None
    while written is None:
        added = complete(context, rules, plan, suppressions)
        edits = join_edits([*added.edits, *plan.edits])
        if not edits:
            break
        try:
            written = write(module, context, edits, plan.alone)
        except NotPlaced as lost:
            if not withdraw(plan, lost.edits):
                message = "the set-up code cannot be placed; not changed"
                return MigrationFailure(INTERNAL, message).result(module.content)
        except MigrationFailure as failure:
            return failure.result(module.content)
    advice += _idle(context, rules, constructs, suppressions)
    after, tree = (module.content, module.tree) if written is None else written
    return Result(
        module.content,
        after,
        account(plan, added, advice, context.source),
        companions(tree),
        stays=written is None and plan.gate is not None,
        gate=plan.gate,
        uses_device=any(map(context.framework.uses_device, constructs)),
    )


def _idle(
    context: Context, rules: Registry, constructs: Sequence[Construct], suppressions: Suppressions
) -> Iterator[Diagnostic]:
    """Comments that switch nothing off."""
    if not suppressions.marks and not suppressions.misspelt:
        return
    if context.options.enabled(IDLE) and not suppressions.covers(START, IDLE):
        for construct in constructs:
            if hasattr(construct.node, "lineno"):
                codes = (rule.code for rule, _ in registry().handlers(construct))
                suppressions.look_at(context.source.range(construct.node), codes)
        suppressions.imports.update(
            line
            for s in statements(context.names.tree) if isinstance(s, _IMPORTS)
            for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)
        )  # fmt: skip
        known = (*registry().rules, *OTHERS)
        of_constructs = {
            code for code, rule in rules.rules.items()
            if rule.handlers and all(kind != ADVISED for kind, *_ in rule.handlers)
        }  # fmt: skip
        for where, message in suppressions.without_effect(known, of_constructs):
            yield Diagnostic(where, IDLE, Severity.ADVICE, message)


def companions(tree: ast.Module) -> frozenset[str]:
    """The runtime packages that a module imports."""
    imports = (s for s in statements(tree) if isinstance(s, _IMPORTS))
    return frozenset(head for s in imports for head in imported_heads(s) if head == RUNTIME)
