"""Complete: what follows from all decisions on a module: imports, set-up, removal of empty
blocks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeGuard

from migrator.analysis import foreign_code
from migrator.analysis.setup_py import builds
from migrator.analysis.syntax.exports import spoken
from migrator.analysis.syntax.names import Names
from migrator.construct import Construct
from migrator.context import Context
from migrator.decision import Rewrite
from migrator.diagnostics import START, Diagnostic, Severity
from migrator.edits import Delete, Edit, EditCall, Insert, SetString, code, covered, edited_ranges
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
    for edit in _unused(context, plan, removed):
        result.edits.append(edit)
        emptied |= set(covered(edit))
    result.modules = plan.requires(emptied)
    for rule, handler in (
        ()
        if plan.gate or context.file.is_native or builds(context.names)
        else rules.exact.get(("file", "setup"), ())
    ):
        decision = handler(context, Construct("file", "setup", context.names.tree))
        enabled = context.options.enabled(rule.code) and not suppressions.covers(START, rule.code)
        if isinstance(decision, Rewrite) and enabled:
            result.edits.extend(decision.edits)
            result.modules.extend(m for m in decision.requires if m not in result.modules)
            note = decision.note or rule.summary
            where = edited_ranges(decision.edits, context.source)
            result.diagnostics.append(
                Diagnostic(START, rule.code, Severity.INFO, note, touched=where)
            )
    chosen = _chosen_device(context, plan, emptied)
    if chosen is not None:
        result.edits.append(chosen)
        assert context.api.device_object is not None
        requires = context.api.device_object.requires
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
        foreign = (*foreign_code.foreign_libraries(context.target.markers.library), RUNTIME)
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
    word = context.api.device_object
    if not context.api.device_names or word is None:
        return None
    variable = context.code.device_variable
    written = (e for e in plan.edits if e.node not in gone and not isinstance(e, SetString))
    uses = [edit for edit in written if variable.is_named_in(code(edit))]
    if not uses:
        return None
    names, lines = context.names, [f"{variable.new} = {word.code}"]
    anchor, before = above_first_use(names, context.file.is_own)
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
    spelled = context.code.module(context.framework.module)[0].partition(".")[0]
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
    """Delete each block whose statements are all deleted, if nothing else in it has an effect."""
    names = context.names
    gone: set[ast.AST] = {
        e.node for e in edits if isinstance(e, Delete) and isinstance(e.node, ast.stmt)
    }
    filled = {names.parents.get(e.anchor) for e in edits if isinstance(e, Insert) and e.anchor}
    result: list[Edit] = []
    queue: list[ast.AST] = list(gone)
    while queue:
        block = names.parents.get(queue.pop())
        if _does_nothing(block, context, gone) and block not in gone and block not in filled:
            gone.add(block)
            queue.append(block)
            if not _is_elif(names, block):
                result.append(Delete(block))
    return result


# Blocks that do nothing if there is nothing in them.
_AROUND = ("torch.no_grad", "torch.enable_grad", "torch.inference_mode", "contextlib.suppress",
           "contextlib.nullcontext")  # fmt: skip


def _does_nothing(
    block: ast.AST | None, context: Context, gone: set[ast.AST]
) -> TypeGuard[ast.stmt]:
    """Whether a block without the statements that go would do nothing."""
    names, none = context.names, context.values.effects.none
    match block:
        case ast.If(test=test, body=body, orelse=orelse):
            return gone.issuperset([*body, *orelse]) and none(test)
        case ast.Try(body=body, handlers=[first, *_], orelse=[], finalbody=[]):
            lines = context.source.text.split("\n")[first.lineno - 1 : block.end_lineno]
            return gone.issuperset(body) and not any("#" in line for line in lines)
        case ast.With(body=body, items=items) if gone.issuperset(body):
            made = [each.context_expr for each in items if each.optional_vars is None]
            calls = [each for each in made if isinstance(each, ast.Call)]
            known = (names.qualified(call.func) in _AROUND for call in calls)
            return (
                len(calls) == len(items)
                and all(known)
                and none(*(each for call in calls for each in call.args))
            )
        case ast.For(target=ast.Name(id=name), iter=iterated, body=body, orelse=[]):
            inside = {*ast.walk(block)}
            uses = names.uses(name, names.scope_of(block))
            alone = len(names.scope_of(block).bindings.get(name, ())) == 1
            counts = isinstance(iterated, ast.Call) and names.qualified(iterated.func) == "range"
            return (
                gone.issuperset(body) and counts and none(iterated) and alone
                and inside.issuperset(uses)
            )  # fmt: skip
    return False


def _unused(context: Context, plan: Plan, removed: set[ast.AST]) -> Iterator[Edit]:
    """Delete local variables whose uses are all gone, if nothing but a value is computed."""
    names, edits = context.names, plan.edits
    if not {"locals", "vars", "eval", "exec"}.isdisjoint(names.by_id):
        return
    elsewhere = {name for scope in names.scopes.values() for name in scope.outer_names}
    elsewhere |= spoken(names) | {word for edit in edits for word in _WORD.findall(code(edit))}
    left = {r.construct.node for r in plan.rulings if not isinstance(r.decision, Rewrite)}
    removed = set(removed)
    queue = [node for node in removed if isinstance(node, ast.Name)]
    while queue:
        for bound in names.lookup(queue.pop()):
            statement = names.statement(bound.node) if bound.kind == "assign" else None
            if statement in removed or not isinstance(statement, ast.Assign):
                continue
            inside = set(ast.walk(statement))
            if inside.isdisjoint(left) and _loses_its_uses(context, statement, removed, elsewhere):
                removed |= inside
                queue += [node for node in inside if isinstance(node, ast.Name)]
                yield Delete(statement)


_WORD = re.compile(r"[A-Za-z_]\w*")


def _loses_its_uses(
    context: Context, statement: ast.Assign, removed: set[ast.AST], elsewhere: Set[str]
) -> bool:
    match statement.targets:
        case [ast.Name(id=name) as target] if name not in elsewhere:
            scope = context.names.scope_of(target)
            uses = list(context.names.uses(name, scope))
            local = isinstance(scope.node, ast.FunctionDef)
            once = len(scope.bindings.get(name, ())) == 1
            gone = bool(uses) and removed.issuperset(uses)
            return local and once and gone and context.values.effects.none(statement.value)
    return False


def _is_elif(names: Names, node: ast.stmt) -> bool:
    parent = names.parents.get(node)
    return isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node]
