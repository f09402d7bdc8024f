"""Engine: bytes in, bytes and diagnostics out. No I/O; user code is never imported or run.

prefilter -> `ast` (names, flow, inventory) -> one decision per construct -> imports and set-up ->
one LibCST parse and one pruned pass for files that change -> the result has to parse.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from migrator import imports, inventory
from migrator.diagnostics import (
    START,
    Diagnostic,
    Outcome,
    Range,
    Safety,
    Severity,
    SourceMap,
)
from migrator.edits import Delete, Edit, Insert, Tree, UnplacedEdit, apply, covered
from migrator.facts import ProjectFacts
from migrator.flow import Flow
from migrator.formats import python
from migrator.inventory import Construct
from migrator.names import Names, dotted
from migrator.options import Options
from migrator.rule import Context, Decision, Keep, Registry, Report, Rewrite, Rule, registry
from migrator.suppress import Suppressions
from migrator.targets import RUNTIME, Target

_IMPORTS_RUNTIME = re.compile(rb"^[ \t]*(?:import|from)[ \t]+" + RUNTIME.encode() + rb"\b", re.M)
SYNTAX, ENCODING, INTERNAL, UNKNOWN = "ERR001", "ERR002", "ERR003", "GEN001"


@dataclass(frozen=True)
class Result:
    """What became of one file."""

    original: bytes
    source: bytes
    diagnostics: tuple[Diagnostic, ...] = ()
    companions: frozenset[str] = frozenset()  # packages that must lie beside the project

    @property
    def changed(self) -> bool:
        return self.source != self.original

    @property
    def failed(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self.diagnostics)


@dataclass
class _Ruling:
    """The decision about one construct, and the rule that made it."""

    construct: Construct
    code: str
    decision: Decision
    range: Range
    text: str


@dataclass
class _Plan:
    """Everything decided about one file, before any of it is applied."""

    gated: bool = False  # a reason was found to leave the whole file alone
    rulings: list[_Ruling] = field(default_factory=list)
    claimed: dict[ast.AST, str] = field(default_factory=dict)  # node an edit removes -> rule code
    left: dict[ast.AST, tuple[str, Report]] = field(default_factory=dict)  # below a whole report

    @property
    def edits(self) -> list[Edit]:
        seen: dict[int, Edit] = {}
        for ruling in self.rulings:
            if isinstance(ruling.decision, Rewrite):
                seen.update((id(edit), edit) for edit in ruling.decision.edits)
        return list(seen.values())

    def requires(self, gone: set[ast.AST]) -> list[str]:
        """Modules that the new code imports; edits below nodes that are `gone` need nothing."""
        modules: dict[str, None] = {}
        for ruling in self.rulings:
            if isinstance(ruling.decision, Rewrite):
                if any(edit.node not in gone for edit in ruling.decision.edits):
                    modules.update(dict.fromkeys(ruling.decision.requires))
        return list(modules)


def migrate(
    source: bytes,
    target: Target,
    options: Options | None = None,
    project: ProjectFacts | None = None,
) -> Result:
    """Migrate one file of Python source.

    Args:
        source: the file's bytes, in any encoding that Python accepts.
        target: the words of the target, from `migrator.targets.targets()`.
        options: what to select and how; the defaults apply safe edits of every rule.
        project: facts of the files that this one imports; None for a snippet.

    Never raises for bad input: it comes back unchanged, with a diagnostic of severity error.
    """
    options = options or Options()
    result = _migrate(source, target, options, project)
    if options.runtime == "bundled" and _IMPORTS_RUNTIME.search(result.source):
        return replace(result, companions=frozenset({RUNTIME}))
    return result


def _migrate(
    source: bytes, target: Target, options: Options, project: ProjectFacts | None
) -> Result:
    if not inventory.has_tokens(source) and not (
        project is not None and project.may_start_gpu_code(source)
    ):
        return Result(source, source)
    try:
        if b"\0" in source:
            raise SyntaxError("source contains NUL bytes")
        decoded = python.decode(source)
        tree = ast.parse(decoded.text)
    except (SyntaxError, ValueError) as error:
        return _failure(source, error)
    except (RecursionError, MemoryError):
        return _failed(source, SYNTAX, "too deeply nested to be parsed")
    try:
        return _migrate_tree(source, decoded, tree, target, options, project)
    except RecursionError:
        return _failed(source, INTERNAL, "too deeply nested to be rewritten")
    except cst.ParserSyntaxError as error:
        return _failed(source, INTERNAL, f"LibCST can not parse this file: {error.message}")


def _failure(source: bytes, error: Exception) -> Result:
    if isinstance(error, SyntaxError):
        where = START
        if error.lineno:
            column = max(error.offset or 1, 1)
            where = Range(error.lineno, column, error.lineno, column)
        return _failed(source, SYNTAX, f"not valid Python: {error.msg}", where)
    return _failed(source, ENCODING, f"can not be decoded: {error}")


def _failed(source: bytes, code: str, message: str, where: Range = START) -> Result:
    return Result(source, source, (Diagnostic(where, code, Severity.ERROR, message),))


def _migrate_tree(
    source: bytes,
    decoded: python.Source,
    tree: ast.Module,
    target: Target,
    options: Options,
    project: ProjectFacts | None,
) -> Result:
    names = Names(tree)
    flow = Flow(names, project.kind if project else None)
    constructs = list(inventory.find(names, flow))
    source_map = SourceMap(decoded.text)
    context = Context(names, flow, source_map, target, options, constructs, project)
    suppressions = Suppressions(decoded.text)
    rules = registry()
    plan = _decide(context, rules, constructs, suppressions)
    while True:
        additions = _additions(context, rules, plan, suppressions)
        edits = [*plan.edits, *additions.edits]
        if not edits:
            return Result(source, source, _diagnostics(plan, additions))
        places = Tree(decoded.text)
        if not places.round_trips:
            return _failed(source, INTERNAL, "this file does not survive a round trip; not changed")
        try:
            text = apply(places, context.source, edits)
        except UnplacedEdit as unplaced:
            _withdraw(plan, unplaced.edits)
            continue
        break
    try:
        ast.parse(text)
    except SyntaxError as error:
        message = f"the rewrite would not parse ({error.msg}, line {error.lineno}); not changed"
        return _failed(source, INTERNAL, message)
    return Result(source, decoded.encode(text), _diagnostics(plan, additions))


# ---- decisions -----------------------------------------------------------------------------------


def _decide(
    context: Context, rules: Registry, constructs: Sequence[Construct], suppressions: Suppressions
) -> _Plan:
    gate = _gate(context, rules)
    plan = _Plan(gated=gate is not None)
    for construct in constructs:
        node = construct.node
        if node in plan.claimed:
            ruling = _ruling(context, construct, plan.claimed[node], Rewrite(()))
        elif node in plan.left:
            ruling = _ruling(context, construct, *plan.left[node])
        elif gate is not None:
            ruling = _ruling(context, construct, gate[0], gate[1])
        else:
            ruling = _rule_on(context, rules, construct, suppressions)
        plan.rulings.append(ruling)
        if isinstance(ruling.decision, Report) and ruling.decision.whole is not None:
            for part in ast.walk(ruling.decision.whole):
                plan.left[part] = ruling.code, ruling.decision
        if isinstance(ruling.decision, Rewrite):
            for edit in ruling.decision.edits:
                for part in covered(edit):
                    plan.claimed.setdefault(part, ruling.code)
    _claim_earlier(plan)
    return plan


def _claim_earlier(plan: _Plan) -> None:
    """An outer edit may remove what an earlier construct reported or kept: then it is rewritten."""
    for ruling in plan.rulings:
        if not isinstance(ruling.decision, Rewrite) and ruling.construct.node in plan.claimed:
            ruling.code = plan.claimed[ruling.construct.node]
            ruling.decision = Rewrite(())


def _gate(context: Context, rules: Registry) -> tuple[str, Report] | None:
    """A reason to leave the whole file alone."""
    for rule, handler in rules.exact.get(("file", "gate"), ()):
        decision = handler(context, Construct("file", "gate", context.names.tree))
        if isinstance(decision, Report):
            return rule.code, decision
    return None


def _rule_on(
    context: Context, rules: Registry, construct: Construct, suppressions: Suppressions
) -> _Ruling:
    where = _place(context, construct)
    for rule, handler in rules.handlers(construct):
        decision = handler(context, construct)
        if decision is None:
            continue
        if suppressions.covers(where, rule.code) or any(
            suppressions.covers(context.source.range(edit.node), rule.code)
            for edit in (decision.edits if isinstance(decision, Rewrite) else ())
            if isinstance(edit.node, ast.expr)
        ):
            decision = Keep("suppressed by a comment")
        elif isinstance(decision, Rewrite):
            decision = _allowed(context, rule, decision)
        return _ruling(context, construct, rule.code, decision)
    reason = f"no rule knows {construct.key}; check by hand what it needs on a TPU"
    return _ruling(context, construct, UNKNOWN, Report(reason))


def _allowed(context: Context, rule: Rule, rewrite: Rewrite) -> Decision:
    options = context.options
    if not options.enabled(rule.code):
        return Report(f"{rule.code} is not selected")
    safety = rewrite.safety or rule.safety
    if safety is Safety.DISPLAY_ONLY or (safety is Safety.UNSAFE and not options.unsafe):
        return Report(f"{rewrite.note or rule.summary} (rewritten with --unsafe)")
    lost = _lost_call(context, rewrite.edits)
    if lost is not None:
        text = context.source.code(lost)
        return Report(f"the rewrite would drop the call {text}; move it to a line of its own")
    taken = imports.taken_names(context.names, rewrite.requires)
    if taken:
        return Report(f"the rewrite needs the name `{taken[0]}`, which this file uses otherwise")
    return rewrite


_QUERIES = re.compile(r"^(?:get|is|has)_|rank|device|gpu|world_size|cuda|environ", re.I)
_PURE = frozenset({
    "int", "str", "float", "bool", "len", "min", "max", "getattr", "hasattr", "isinstance", "type",
    "super", "os.getenv", "os.environ.get", "format", "get", "join", "list", "tuple", "dict",
    "range", "map",
})  # fmt: skip


def _lost_call(context: Context, edits: Sequence[Edit]) -> ast.Call | None:
    """A call that an edit drops although it may do something, other than the rewritten one."""
    for edit in edits:
        for node in covered(edit):
            if not isinstance(node, ast.Call) or node is edit.node:
                continue
            name = context.names.qualified(node.func) or dotted(node.func) or ""
            last = name.rpartition(".")[2]
            if isinstance(node.func, ast.Attribute):
                last = node.func.attr
            known = name.startswith("torch.") or name in _PURE or last in _PURE
            if not known and not _QUERIES.search(last):
                return node
    return None


def _place(context: Context, construct: Construct) -> Range:
    node = construct.node
    if isinstance(node, ast.Attribute) and construct.kind == "method":
        span = context.source.range(node)  # the method's own name, as in a traceback
        start = span.end_column - len(node.attr)
        return Range(span.end_line, start, span.end_line, span.end_column)
    return context.source.range(node)


def _ruling(context: Context, construct: Construct, code: str, decision: Decision) -> _Ruling:
    text = " ".join(context.source.code(construct.node).split())
    shortened = text if len(text) <= 60 else f"{text[:57]}…"
    return _Ruling(construct, code, decision, _place(context, construct), shortened)


def _withdraw(plan: _Plan, edits: Sequence[Edit]) -> None:
    """Report the constructs of edits that could not be placed, and all that hangs on them."""
    lost = {id(edit) for edit in edits}
    codes = set()
    for ruling in plan.rulings:
        if isinstance(ruling.decision, Rewrite) and lost & {id(e) for e in ruling.decision.edits}:
            nodes = {n for edit in ruling.decision.edits for n in covered(edit)}
            for other in plan.rulings:
                if other.construct.node in nodes:
                    other.decision = _UNPLACED
            codes.update(nodes)
            ruling.decision = _UNPLACED
    for node in codes:
        plan.claimed.pop(node, None)


_UNPLACED = Report("inside a string expression that can not be edited safely; edit it by hand")


# ---- what follows from the decisions -------------------------------------------------------------


@dataclass
class _Additions:
    edits: list[Edit] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def _additions(
    context: Context, rules: Registry, plan: _Plan, suppressions: Suppressions
) -> _Additions:
    """Set-up statements, imports, and blocks that the edits leave empty."""
    result = _Additions(edits=list(_emptied(context.names, plan.edits)))
    emptied = {node for edit in result.edits for node in covered(edit)}
    removed = emptied | set(plan.claimed)
    result.modules = plan.requires(emptied)
    for rule, handler in () if plan.gated else rules.exact.get(("file", "setup"), ()):
        decision = handler(context, Construct("file", "setup", context.names.tree))
        enabled = context.options.enabled(rule.code) and not suppressions.covers(START, rule.code)
        if isinstance(decision, Rewrite) and enabled:
            result.edits.extend(decision.edits)
            result.modules.extend(m for m in decision.requires if m not in result.modules)
            note = decision.note or rule.summary
            result.diagnostics.append(Diagnostic(START, rule.code, Severity.INFO, note))
    first = next((e for e in result.edits if isinstance(e, Insert)), None)
    result.edits[:0] = imports.edits(context.names, result.modules, removed, first)
    return result


def _emptied(names: Names, edits: Sequence[Edit]) -> list[Edit]:
    """An `if` or `else` whose statements all went goes too, if its test does nothing."""
    gone: set[ast.AST] = {
        e.node for e in edits if isinstance(e, Delete) and isinstance(e.node, ast.stmt)
    }
    result: list[Edit] = []
    queue: list[ast.AST] = list(gone)
    while queue:
        block = names.parents.get(queue.pop())
        if (
            isinstance(block, ast.If)
            and not block.orelse
            and all(s in gone for s in block.body)
            and block not in gone
            and not _is_elif(names, block)
            and _does_nothing(names, block.test)
        ):
            gone.add(block)
            queue.append(block)
            result.append(Delete(block))
    return result


def _does_nothing(names: Names, test: ast.expr) -> bool:
    """True for a test without effects: names, comparisons, questions to torch.cuda."""
    for node in ast.walk(test):
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Subscript):
            return False
        if isinstance(node, ast.Call):
            called = names.qualified(node.func) or ""
            if not called.startswith(("torch.", "isinstance", "hasattr", "len", "getattr")):
                return False
    return True


def _is_elif(names: Names, node: ast.If) -> bool:
    parent = names.parents.get(node)
    return isinstance(parent, ast.If) and parent.orelse == [node]


# ---- diagnostics ---------------------------------------------------------------------------------


def _diagnostics(plan: _Plan, additions: _Additions) -> tuple[Diagnostic, ...]:
    found: list[Diagnostic] = list(additions.diagnostics)
    for ruling in plan.rulings:
        where, code = ruling.range, ruling.code
        match ruling.decision:
            case Rewrite(note=note):
                severity, outcome, message = Severity.INFO, Outcome.REWRITTEN, note
            case Keep(reason=reason, advice=advice):
                severity, outcome, message = Severity.INFO, Outcome.KEPT, reason
                if advice:
                    found.append(Diagnostic(where, code, Severity.ADVICE, advice))
            case Report(reason=reason):
                severity, outcome, message = Severity.WARNING, Outcome.REPORTED, reason
        found.append(Diagnostic(where, code, severity, message, outcome, ruling.text))
    return tuple(sorted(found, key=lambda d: (d.range, d.code, d.message)))
