"""Advice: what a TPU expert would mention about correct code without GPU constructs.

One walk over the file. A rule registers for nodes with `rule.on("advice", …)`: for calls by their
last name (`"nonzero()"`), for attributes by theirs (`".float64"`), for other nodes by their class
(`"If"`). If its handler returns `Keep`, the text becomes a diagnostic without an outcome.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.construct import Construct
from migrator.context import Context
from migrator.decision import Keep, Rewrite
from migrator.diagnostics import Diagnostic, Severity
from migrator.edits import Edit, EditCall
from migrator.pipeline.decide import excerpt
from migrator.pipeline.plan import Plan
from migrator.pipeline.suppress import Suppressions
from migrator.registry import Registry

KIND = "advice"
_FREQUENT = (ast.Constant, ast.arg, ast.keyword, ast.Expr, ast.Subscript, ast.Assign, ast.Tuple)


def advise(
    context: Context, rules: Registry, plan: Plan, suppressions: Suppressions
) -> Iterator[Diagnostic]:
    """Advice on one file that uses a device, about code that no edit changes."""
    if plan.gate or not _works_on_device(context):
        return
    enabled = context.options.enabled
    handlers = {
        key: [(rule, handler) for rule, handler in found if enabled(rule.code)]
        for (kind, key), found in rules.exact.items()
        if kind == KIND
    }
    without = {ast.Name, *(kind for kind in _FREQUENT if kind.__name__ not in handlers)}
    told = _told_lines(plan)
    rewrites = {
        r.construct.node: r.decision for r in plan.rulings if isinstance(r.decision, Rewrite)
    }
    staying = {e.node for rewrite in rewrites.values() for e in rewrite.edits if _only_drops(e)}
    said: set[tuple[str, ast.AST | None]] = set()
    for node in context.names.order:
        if type(node) in without:
            continue  # most nodes
        key = _key(node)
        if key not in handlers or node in rewrites:
            continue
        if node in plan.claimed and node not in staying:  # a call that only loses arguments stays
            continue
        for rule, handler in handlers[key]:
            decision = handler(context, Construct(KIND, key, node))
            if not isinstance(decision, Keep):
                continue
            once = decision.advice, context.names.statement(node)  # once per line
            if once in said:
                continue
            said.add(once)
            shown = getattr(node, "test", getattr(node, "iter", node))  # the head of a block
            where = context.source.range(shown)
            last = getattr(node, "end_lineno", where.line) + 1
            if told.isdisjoint(range(where.line, last)) and not suppressions.covers(
                where, rule.code
            ):
                text = excerpt(context, shown)
                yield Diagnostic(where, rule.code, Severity.ADVICE, decision.advice, None, text)


def _only_drops(edit: Edit) -> bool:
    """Whether a call stays as it is but for some arguments."""
    if not isinstance(edit, EditCall):
        return False
    changes = (edit.method, edit.function, edit.first, *edit.put, *edit.rename, *edit.parts)
    return not any(changes)


def _works_on_device(context: Context) -> bool:
    """Whether this file spends time on a device: a program, or a module of one, but not a test."""
    if context.project is not None and "tests" in context.project.path.parts:
        return False
    return context.file.uses_device or (bool(context.constructs) and not context.file.is_entry)


def _key(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            return f"{function.attr}()"
        return f"{function.id}()" if isinstance(function, ast.Name) else ""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return type(node).__name__


def _told_lines(plan: Plan) -> set[int]:
    """Lines that have advice on a construct."""
    return {
        ruling.range.line
        for ruling in plan.rulings
        if isinstance(ruling.decision, Keep) and ruling.decision.advice
    }
