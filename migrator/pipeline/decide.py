"""Decide: exactly one decision for each construct of a file, from the rule that handles it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from migrator.analysis import foreign_code
from migrator.analysis.devices.availability_checks import CodePlace, code_place
from migrator.analysis.devices.availability_guards import AvailabilityGuards, Guard
from migrator.analysis.devices.cuda_kernels import Kernels
from migrator.analysis.devices.machine_conditions import MAY_ASK, never_runs
from migrator.analysis.project.never_called import is_never_called
from migrator.analysis.setup_py import builds
from migrator.analysis.values.value_kinds import Kind
from migrator.codes import UNKNOWN
from migrator.construct import Construct
from migrator.context import Context
from migrator.decision import Decision, Keep, Report, Rewrite
from migrator.diagnostics import SUPPRESSED, Effort, Range, Safety, shortened
from migrator.edits import SetString, Wrap, code, covered
from migrator.formats import embedded_text
from migrator.frameworks.torch.embedded_commands import next_in_line
from migrator.pipeline import imports, unsupported_code
from migrator.pipeline.file_blockers import gate_of
from migrator.pipeline.plan import Plan, Ruling, claim_earlier, undo
from migrator.pipeline.suppress import Suppressions
from migrator.registry import Registry, registry
from migrator.rule import Rule
from migrator.targets import RUNTIME

_NATIVE = Keep("written for the target itself")
_LAUNCHED = Report(
    "only reached under a launcher; one process drives the TPU, so start the program without one",
    effort=Effort.MINUTES,  # raised for several devices
)
_OF_BUILD = Keep("runs while the project is built; a TPU machine has no GPU, and builds without")
_SUPPRESSED = Keep(SUPPRESSED)


def decide(
    context: Context, rules: Registry, constructs: Sequence[Construct], suppressions: Suppressions
) -> Plan:
    gate = None if context.file.is_native else gate_of(context, rules)
    plan = Plan()
    if gate is not None and gate[1].unsafe and context.options.unsafe:
        plan.unsafe, gate = gate[1].unsafe, None
    plan.gate = gate[1] if gate is not None else None
    for construct in constructs:
        node = construct.node
        if node in plan.claimed:
            rulings = [_ruling(context, construct, plan.claimed[node], Rewrite(()))]
        elif node in plan.left:
            rulings = [_ruling(context, construct, *plan.left[node])]
        elif gate is not None and construct.kind not in ("own", "own import"):
            rulings = [_ruling(context, construct, gate[0], gate[1])]
        elif context.file.is_native and not is_of_environment(construct):
            rulings = [_ruling(context, construct, registry().for_native_code.code, _NATIVE)]
        elif context.distributed.leaves_to_launcher(node):
            rulings = [_ruling(context, construct, _launched_code(), _LAUNCHED)]
        elif (why := unsupported_code.why(context, node)) is not None:
            rulings = [_ruling(context, construct, _launched_code(), why)]
        else:
            rulings = _rule_on_all(context, rules, construct, suppressions)
        if gate is None:
            _keep_dead(context, rulings)
        plan.rulings += rulings
        for ruling in rulings:
            for whole, decision in _left(ruling.decision):
                for part in ast.walk(whole):
                    plan.left[part] = ruling.code, decision
            if isinstance(ruling.decision, Rewrite):
                for edit in ruling.decision.edits:
                    for part in covered(edit):
                        plan.claimed.setdefault(part, ruling.code)
    _keep_guards(context, rules, plan)
    claim_earlier(plan)
    return plan


def _keep_dead(context: Context, rulings: Sequence[Ruling]) -> None:
    """Keep what isn't rewritten, and never runs on a TPU machine."""
    for ruling in rulings:
        if isinstance(ruling.decision, Rewrite) or ruling.decision is _SUPPRESSED:
            continue
        why = _why_dead(context, ruling)
        if why:
            ruling.decision = Keep(f"never runs on a TPU machine{why}")


def _why_dead(context: Context, ruling: Ruling) -> str:
    node, project = ruling.construct.node, context.project
    test = never_runs(context.names, node) if context.once(_may_ask_machine) else None
    if test is not None:
        return f": `{shortened(context.source.code(test))}` (line {test.lineno})"
    if project is None or not isinstance(ruling.decision, Report):
        return ""
    return ", nor does what calls it" if is_never_called(project, node) else ""


def _may_ask_machine(context: Context) -> bool:
    return MAY_ASK.search(context.source.text.encode("utf-8", "replace")) is not None


def _launched_code() -> str:
    return registry().for_launched_code.code


def _left(decision: Decision) -> Iterator[tuple[ast.AST, Decision]]:
    """The nodes that a decision leaves unchanged, with the decision for everything inside them."""
    match decision:
        case Report(whole=ast.AST() as whole):
            yield whole, decision
        case Keep(leaves=leaves):
            yield from ((whole, decision) for whole in leaves)
        case Rewrite(leaves=leaves, note=note):
            yield from ((whole, Keep(note)) for whole in leaves)


def _keep_guards(context: Context, rules: Registry, plan: Plan) -> None:
    """Keep tests that guard CUDA-only code: they are false on a TPU.

    Reports on code behind them are dropped if it only overlaps work, which XLA does by itself, or
    if other code, which runs as it stands, takes its place.
    """
    made = [r for r in plan.rulings if isinstance(r.decision, Rewrite) and r.decision.edits]
    guards = AvailabilityGuards(Kernels(context.names, context.flow, context.project, plan.claimed))
    asked = [(r, guard) for r in made if (guard := guards.guard(r.construct.node)) is not None]
    if not asked:
        return
    questions = {id(ruling) for ruling, _ in asked}
    works = sorted(
        code_place(r.construct.node, "move" if _moves(rules, r) else "")
        for r in made
        if id(r) not in questions and r.works
    )
    lost = sorted(
        code_place(r.construct.node, text=r.text)
        for r in plan.rulings
        if isinstance(r.decision, Report)
        and context.options.enabled(r.code)
        and r.code in rules.rules
        and rules.rules[r.code].for_cuda
    )
    for ruling, guard in asked:
        alone, moved = _alone(guard, guards.places, works, lost)
        if alone is None:
            continue
        behind = f"{alone.text} (line {alone.line})"
        decision: Decision = Keep(f"false on a TPU, where {behind} does not run")
        if moved is not None:
            decision = Report(
                f"line {moved.line} moves to the device, but {behind} does not run on a TPU: check "
                "for each separately"
            )
        undo(plan, ruling, decision)
        if moved is None:
            line = code_place(ruling.construct.node).line
            served = bool(guard.otherwise) and not _is_reported(plan, guard.otherwise)
            for other in plan.rulings:
                if not isinstance(other.decision, Report) or not guard.first(
                    [code_place(other.construct.node)]
                ):
                    continue
                if _is_for_overlap(rules, other) or (served and _is_replaced(rules, other)):
                    other.decision = Keep(f"does not run on a TPU, where line {line} is false")


_COMPUTES = ("name", "library", "extension")


def _is_replaced(rules: Registry, ruling: Ruling) -> bool:
    """Whether what is reported is no more than another way to compute the same.

    A state of random numbers belongs to the device that draws them, and autocast is no such way.
    """
    rule, found = rules.rules.get(ruling.code), ruling.construct
    computes = found.kind in _COMPUTES and not re.search(r"rng_state|\bamp\b", found.key)
    return rule is not None and rule.for_cuda and computes


def _is_reported(plan: Plan, code: Sequence[ast.AST]) -> bool:
    """Whether something in some code is left to change by hand."""
    nodes = {part for each in code for part in ast.walk(each)}
    return any(isinstance(r.decision, Report) and r.construct.node in nodes for r in plan.rulings)


def _alone(
    guard: Guard, places: Sequence[CodePlace], works: Sequence[CodePlace], lost: Sequence[CodePlace]
) -> tuple[CodePlace | None, CodePlace | None]:
    """What only CUDA runs behind a question, and what moves to the device behind the same one.

    `works` is rewritten, and `lost` reported: it fails where the answer is yes.
    """
    kernel, moved = guard.first(places, "kernel"), guard.first(places, "move")
    missing = guard.first(lost)
    reached = (first for first in (moved, guard.first(works)) if first is not None)
    if kernel is None and missing and all(guard.reaches(missing, first) for first in reached):
        return missing, moved or guard.first(works, "move")  # fails before anything works
    if kernel is None and moved is None:
        kernel = guard.first(places, "wrapper") or (missing if guard.of_tensor else None)
    return kernel, moved


def _moves(rules: Registry, ruling: Ruling) -> bool:
    rule = rules.rules.get(ruling.code)
    return rule is not None and rule.moves_to_device


def _is_for_overlap(rules: Registry, ruling: Ruling) -> bool:
    rule = rules.rules.get(ruling.code)
    return rule is not None and rule.for_overlap


def _rule_on_all(
    context: Context, rules: Registry, construct: Construct, suppressions: Suppressions
) -> list[Ruling]:
    """The rulings on a construct and, if it is a line of text, on everything GPU-related in it.

    Each handler gets the line as changed by earlier handlers, so all share the last edit.
    """
    rulings: list[Ruling] = []
    done: set[str] = set()
    kept: set[str] = set()
    found: Construct | None = construct
    while found is not None:
        rulings.append(_rule_on(context, rules, found, suppressions))
        done.add(found.key)
        if construct.kind not in ("command", "setting") or not isinstance(found.node, ast.Constant):
            break
        text = found.content
        decision = rulings[-1].decision
        if not isinstance(decision, Report):
            kept.add(found.key)
        if isinstance(decision, Rewrite):
            match decision.edits:
                case [SetString(value=value)]:
                    held = embedded_text.is_embedded(context.names.parent(found.node))
                    text = json.loads(f'"{value}"') if held else value
                case _:
                    break
            for ruling in rulings:
                if isinstance(ruling.decision, Rewrite):
                    ruling.decision = replace(ruling.decision, edits=decision.edits)
        found = next_in_line(found, text, done, kept)
    return rulings


def _rule_on(
    context: Context, rules: Registry, construct: Construct, suppressions: Suppressions
) -> Ruling:
    where = _range_of(context, construct)
    doubt = _doubt(context, construct)
    for rule, handler in rules.handlers(construct):
        decision = handler(context, construct)
        if decision is None:
            continue
        if doubt is not None and isinstance(decision, Rewrite):
            decision = doubt
        if suppressions.covers(where, rule.code) or any(
            suppressions.covers(context.source.range(edit.node), rule.code)
            for edit in (decision.edits if isinstance(decision, Rewrite) else ())
            if isinstance(edit.node, ast.expr)
        ):
            decision = _SUPPRESSED
        elif (
            isinstance(decision, Rewrite)
            and context.framework.uses_device(construct)
            and builds(context.names)
        ):
            decision = _OF_BUILD
        elif isinstance(decision, Rewrite):
            decision = _allowed(context, rule, construct, decision)
        return _ruling(context, construct, rule.code, decision)
    reason = f"no rule knows {construct.key}; check by hand what it needs on a TPU"
    return _ruling(context, construct, UNKNOWN, Report(reason))


_OF_TORCH = ("cuda", "is_cuda", "pin_memory", "half", "record_stream", "to", "type", "get_device",
             "compile")  # fmt: skip
_ELSEWHERE = Report("this file, and what imports it, do not use PyTorch")


def _doubt(context: Context, construct: Construct) -> Report | None:
    """Why something may not be PyTorch: an object of another class or library."""
    node = construct.node
    if (where := _replaced(context, construct)) is not None:
        return Report(f"is replaced in {where}, and calls what is put there")
    is_word = (construct.kind, construct.key) == ("string", "cuda")
    if is_word and not context.values.evidence.of_torch:
        return _ELSEWHERE
    if construct.kind != "method" or not isinstance(node, ast.Attribute):
        return None
    if node.attr not in _OF_TORCH or context.flow.kind(node.value) & Kind.TENSOR:
        return None
    if not context.values.evidence.of_torch:
        return _ELSEWHERE
    if (module := context.values.evidence.module(node.value)) is not None:
        return Report(f"{module} is a module, so {node.attr} is not a tensor's")
    if not (found := context.values.defines(node.attr, context.flow.kind(node.value))):
        return None
    call = context.names.call_of(node)
    given = call.args[0] if call is not None and call.args else None
    return Report(f"{found} itself; the source doesn't show whose {node.attr} this is", whole=given)


def _replaced(context: Context, construct: Construct) -> str | None:
    """Where the program replaces the function of torch that a construct names or calls."""
    if construct.kind == "name":
        return context.file.patched.get(construct.key)
    if construct.kind == "method" and construct.key == "cuda":
        methods = (f"torch.{owner}.cuda" for owner in ("Tensor", "nn.Module"))
        return next((context.file.patched[m] for m in methods if m in context.file.patched), None)
    return None


def _allowed(context: Context, rule: Rule, construct: Construct, rewrite: Rewrite) -> Decision:
    options = context.options
    if not options.enabled(rule.code):
        return Report(f"{rule.code} is not selected")
    safety = rewrite.safety or rule.safety
    why = rewrite.note or rule.summary
    if safety is Safety.DISPLAY_ONLY:
        return Report(why)
    if safety is Safety.UNSAFE and not options.unsafe:
        text = f"{why} (rewritten with --unsafe)"
        if rewrite.works:
            return Keep("works as it stands", advice=text, unsafe=why)
        return Report(text, unsafe=why)
    lost = _lost(context, construct, rewrite)
    if lost is not None:
        text = context.source.code(lost)
        return Report(f"the rewrite would drop {text}; move it to its own line")
    imported = any(each.partition(".")[0] == RUNTIME for each in rewrite.requires)
    if not imported and any(f"{RUNTIME}." in code(e) for e in rewrite.edits):
        rewrite = replace(rewrite, requires=(*rewrite.requires, RUNTIME))
    taken = imports.taken_names(context.names, rewrite.requires)
    if taken:
        return Report(
            f"the rewrite needs the name `{taken[0]}`, which this file uses for something else"
        )
    return rewrite


def _lost(context: Context, construct: Construct, rewrite: Rewrite) -> ast.AST | None:
    """Code with a possible side effect that the edits would drop, apart from the construct
    itself."""
    edits = rewrite.edits
    own: set[ast.AST | None] = {construct.node, context.names.call_of(construct.node)}
    own.update(node for whole in rewrite.drops for node in ast.walk(whole))
    own.update(edit.node for edit in edits)
    holes = [hole for edit in edits for hole in getattr(edit, "holes", {}).values()]
    own.update(node for hole in holes for node in ast.walk(hole))
    dropped = [node for edit in edits for node in covered(edit)]
    for edit in edits:  # a condition leaves them out, too
        if isinstance(edit, Wrap) and edit.header.startswith("if "):
            dropped += (node for statement in edit.statements for node in ast.walk(statement))
    for node in dropped:
        own.update(ast.walk(node.body) if isinstance(node, ast.Lambda) else ())  # runs later
    return context.values.effects.first(node for node in dropped if node not in own)


def _range_of(context: Context, construct: Construct) -> Range:
    node = construct.node
    if isinstance(node, ast.Attribute) and construct.kind == "method":
        span = context.source.range(node)  # the method's own name, as in a traceback
        start = span.end_column - len(node.attr)
        return Range(span.end_line, start, span.end_line, span.end_column)
    return context.source.range(_node_to_show(node))


def _node_to_show(node: ast.AST) -> ast.AST:
    """The node to show for a construct: a loop's iterable, an `if`'s test."""
    match node:
        case ast.For(iter=header) | ast.While(test=header) | ast.If(test=header):
            return header
    return node


def _ruling(context: Context, construct: Construct, code: str, decision: Decision) -> Ruling:
    text = excerpt(context, construct.node)
    return Ruling(construct, code, decision, _range_of(context, construct), text)


def excerpt(context: Context, node: ast.AST) -> str:
    """The source text shown in a diagnostic, on one line and shortened."""
    held = embedded_text.text_of(node, context.names.parents.get(node))
    text = context.source.code(_node_to_show(node)) if held is None else held
    return shortened(text)


def is_of_environment(construct: Construct) -> bool:
    """Whether a construct concerns a target's library or the machine, not the device."""
    kinds = ("command", "requirement", "setting", "variable")
    return construct.kind in kinds or construct.key.startswith(foreign_code.LIBRARIES)
