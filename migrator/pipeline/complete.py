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
    uses = [e for e in plan.edits if e.node not in gone and variable.is_named_in(code(e))]
    if not uses:
        return None
    names, lines = context.names, [f"{variable.new} = {word.code}"]
    anchor, before = above_first_use(names, context.is_own)
    made = _import_below(context, 0 if anchor is None else anchor.lineno - before)
    if made is not None:
        first = min(edit.node.lineno for edit in uses if isinstance(edit.node, _LOCATED))
        if first > made.lineno and not _calls_own(context, anchor, made):
            anchor, before = made, False
        else:
            lines.insert(0, context.source.code(made))
    return Insert(names.tree, anchor, ["", *lines, ""], before=before)


_LOCATED = (ast.stmt, ast.expr)


def _import_below(context: Context, line: int) -> ast.stmt | None:
    """The import of the framework, if a file has it only further below."""
    spelled = context.module(context.framework.module)[0].partition(".")[0]
    bound = context.names.top.bindings.get(spelled, ())
    found = [b.node for b in bound if b.kind == "import" and isinstance(b.node, ast.stmt)]
    first = min(found, key=lambda statement: statement.lineno, default=None)
    return first if first is not None and first.lineno > line else None


def _calls_own(context: Context, above: ast.stmt | None, below: ast.stmt) -> bool:
    """Whether code between two statements may call functions of this file, which use the device."""
    names, first = context.names, 0 if above is None else above.lineno
    return any(
        isinstance(node, ast.Call)
        and first < node.lineno < below.lineno
        and names.function(node) is None
        and any(b.kind in ("def", "class") for n in ast.walk(node) if isinstance(n, ast.Name)
                for b in names.lookup(n))
        for node in names.all(ast.Call)
    )  # fmt: skip


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
