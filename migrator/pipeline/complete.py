"""Complete: what follows from all decisions on a module: imports, set-up, removal of empty
blocks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migrator.analysis import traces
from migrator.analysis.setup_py import builds
from migrator.analysis.syntax.names import Names
from migrator.construct import Construct
from migrator.context import Context
from migrator.decision import Rewrite
from migrator.diagnostics import START, Diagnostic, Severity
from migrator.edits import Delete, Edit, EditCall, Insert, Replace, code, covered, places
from migrator.formats.embedded import spoken
from migrator.pipeline import imports
from migrator.pipeline.first_use import above_first_use
from migrator.pipeline.plan import Plan
from migrator.pipeline.suppress import Suppressions
from migrator.registry import Registry, registry, vocabulary
from migrator.targets import RUNTIME


@dataclass
class Additions:
    edits: list[Edit] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def complete(
    context: Context, rules: Registry, plan: Plan, suppressions: Suppressions
) -> Additions:
    """Add set-up statements and imports, and remove blocks and variables that the edits leave
    unused."""
    result = Additions(edits=list(_emptied(context, plan.edits)))
    emptied = {node for edit in result.edits for node in covered(edit)}
    removed = emptied | set(plan.claimed)
    # if only its arguments change, a call keeps its function's name
    removed -= {e.node.func for e in plan.edits if isinstance(e, EditCall) and not e.function}
    for edit in _unused(context.names, plan.edits, removed):
        result.edits.append(edit)
        emptied |= set(covered(edit))
    result.modules = plan.requires(emptied)
    for rule, handler in (
        ()
        if plan.gate or context.is_native or builds(context.names)
        else rules.exact.get(("file", "setup"), ())
    ):
        decision = handler(context, Construct("file", "setup", context.names.tree))
        enabled = context.options.enabled(rule.code) and not suppressions.covers(START, rule.code)
        if isinstance(decision, Rewrite) and enabled:
            result.edits.extend(decision.edits)
            result.modules.extend(m for m in decision.requires if m not in result.modules)
            note = decision.note or rule.summary
            where = places(decision.edits, context.source)
            result.diagnostics.append(
                Diagnostic(START, rule.code, Severity.INFO, note, touched=where)
            )
    chosen = _chosen_device(context, plan, emptied)
    if chosen is not None:
        result.edits.append(chosen)
        assert context.words.device_object is not None
        requires = context.words.device_object.requires
        result.modules.extend(m for m in requires if m not in result.modules)
    inserts = [
        e
        for e in [*result.edits, *plan.edits]
        if isinstance(e, Insert) and not e.lines[0].startswith("from ")
    ]
    ahead = next((e for e in inserts if e.ahead), None)
    inserts = [e for e in inserts if not e.ahead]
    first = min(inserts, key=lambda e: e.anchor.lineno if e.anchor else 0, default=None)
    foreign: tuple[str, ...] = ()
    if rules is registry().foreign:
        foreign = (*traces.foreign_libraries(context.target.traces.library), RUNTIME)
    known = vocabulary(context.target.framework, context.options.replace)
    added = imports.edits(
        context.names, result.modules, removed, known, context.framework.module, first, ahead,
        foreign=foreign,
        taken=lambda: _named(context, [*result.edits, *plan.edits]),
    )  # fmt: skip
    result.edits = [*added, *result.edits] if ahead is None else [*result.edits, *added]
    return result


def _chosen_device(context: Context, plan: Plan, gone: set[ast.AST]) -> Insert | None:
    """A new variable for the device, if new code uses one and the file has none."""
    word = context.words.device_object
    if not context.words.device_names or word is None:
        return None
    variable = context.device_variable
    if not any(e.node not in gone and variable.is_named_in(code(e)) for e in plan.edits):
        return None
    anchor, before = above_first_use(context.names, context.is_own)
    return Insert(
        context.names.tree, anchor, ["", f"{variable.new} = {word.code}", ""], before=before
    )


def _named(context: Context, edits: Sequence[Edit]) -> frozenset[str]:
    """Names of imports that stay, because other files import them from here or new code uses
    them."""
    taken = context.project.taken_names() if context.project is not None else frozenset()
    return taken.union(*(_HEAD.findall(code(edit)) for edit in edits))


_HEAD = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\.")  # the first part of a dotted name


def _emptied(context: Context, edits: Sequence[Edit]) -> list[Edit]:
    """Delete each `if` whose statements (with its `else`) are all deleted and whose test has no
    effect."""
    names = context.names
    gone: set[ast.AST] = {
        e.node for e in edits if isinstance(e, Delete) and isinstance(e.node, ast.stmt)
    }
    filled = {names.parents.get(e.anchor) for e in edits if isinstance(e, Insert) and e.anchor}
    result: list[Edit] = []
    queue: list[ast.AST] = list(gone)
    while queue:
        block = names.parents.get(queue.pop())
        if (
            isinstance(block, ast.If)
            and all(s in gone for s in [*block.body, *block.orelse])
            and block not in gone
            and block not in filled
            and not _is_elif(names, block)
            and context.effects.none(block.test)
        ):
            gone.add(block)
            queue.append(block)
            result.append(Delete(block))
    return result


def _unused(names: Names, edits: Sequence[Edit], removed: set[ast.AST]) -> Iterator[Edit]:
    """Delete local variables that would only hold a number, if all their uses are gone."""
    if not {"locals", "vars", "eval", "exec"}.isdisjoint(names.by_id):
        return
    elsewhere = {name for scope in names.scopes.values() for name in scope.outer_names}
    elsewhere |= spoken(names)
    for edit in edits:
        if not isinstance(edit, Replace):
            continue
        statement = names.statement(edit.node)
        match statement:
            case ast.Assign(targets=[ast.Name(id=name) as target]) if _is_number(statement, edit):
                scope = names.scope_of(target)
                uses = list(names.uses(name, scope))
                bound = scope.bindings.get(name, ())
                local = isinstance(scope.node, ast.FunctionDef) and len(bound) == 1
                if local and name not in elsewhere and uses and removed.issuperset(uses):
                    yield Delete(statement)


def _is_number(statement: ast.Assign, edit: Replace) -> bool:
    """Whether the assigned value becomes a literal, or only counts devices."""
    match statement.value:
        case ast.Call(func=counts, args=[], keywords=[]) if counts is edit.node:
            return edit.template.endswith(".device_count")
    return statement.value is edit.node and edit.template.isdecimal()


def _is_elif(names: Names, node: ast.If) -> bool:
    parent = names.parents.get(node)
    return isinstance(parent, ast.If) and parent.orelse == [node]
