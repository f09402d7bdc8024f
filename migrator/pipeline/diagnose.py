"""The diagnostic for each construct, from the decision on it."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.decision import Keep, Report, Rewrite
from migrator.diagnostics import Diagnostic, Effort, Outcome, Range, Safety, Severity, SourceMap
from migrator.edits import covered, edited_ranges
from migrator.pipeline.complete import Additions
from migrator.pipeline.plan import Plan
from migrator.registry import registry


def account(
    plan: Plan, additions: Additions, advised: Sequence[Diagnostic], source: SourceMap
) -> tuple[Diagnostic, ...]:
    found: list[Diagnostic] = [*additions.diagnostics, *advised]
    rules = registry().rules
    gone = {node for edit in additions.edits for node in covered(edit)}
    for ruling in plan.rulings:
        where, code, rule = ruling.range, ruling.code, rules.get(ruling.code)
        safety: Safety | None = None
        effort: Effort | None = None
        why = ""
        touched: tuple[Range, ...] = ()
        decision = ruling.decision
        if ruling.construct.kind == "library" and ruling.construct.node in gone:
            decision = Rewrite(())  # an import that lost all its uses
        match decision:
            case Rewrite(note=note, advice=advice):
                if advice:
                    found.append(Diagnostic(where, code, Severity.ADVICE, advice))
                severity, outcome, message = Severity.INFO, Outcome.REWRITTEN, note
                safety = decision.safety or (rule.safety if rule else Safety.SAFE)
                why = note or rule.summary if rule and safety is not Safety.SAFE else safety.words
                touched = edited_ranges(decision.edits, source) or (where,)
                if plan.unsafe:
                    safety, why = Safety.UNSAFE, plan.unsafe
            case Keep(reason=reason, advice=advice, unsafe=why):
                severity, outcome, message = Severity.INFO, Outcome.KEPT, reason
                safety = Safety.UNSAFE if why else None
                if advice:
                    found.append(Diagnostic(where, code, Severity.ADVICE, advice))
            case Report(reason=reason, unsafe=why):
                severity, outcome, message = Severity.WARNING, Outcome.REPORTED, reason
                safety = Safety.UNSAFE if why else None
                effort = decision.effort or (rule.effort if rule else Effort.HOURS)
        found.append(
            Diagnostic(
                where,
                code,
                severity,
                message,
                outcome,
                ruling.text,
                safety,
                why,
                effort,
                touched,
                name=ruling.construct.key,
            )
        )
    return tuple(sorted(found, key=lambda d: (d.range, d.code, d.message)))
