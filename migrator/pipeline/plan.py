"""The plan for one module: a ruling on each of its constructs, before any edit is applied."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from migrator.analysis.syntax.names import Names
from migrator.construct import Construct
from migrator.decision import Decision, Keep, Report, Rewrite
from migrator.diagnostics import Range
from migrator.edits import Delete, Edit, SetString, covered


@dataclass
class Ruling:
    """The decision about one construct, and the rule that made it."""

    construct: Construct
    code: str
    decision: Decision
    range: Range
    text: str

    @property
    def edits(self) -> Sequence[Edit]:
        return self.decision.edits if isinstance(self.decision, Rewrite) else ()

    @property
    def works(self) -> bool:
        """Whether something is left to run after the edits, and is no wait for the device."""
        waits = self.construct.key in ("torch.cuda.synchronize", "torch.cuda.empty_cache")
        return not waits and not all(isinstance(edit, Delete) for edit in self.edits)


@dataclass
class Plan:
    """Everything decided about one file before any edit is applied."""

    gate: Report | None = None  # a reason to leave the whole file unchanged
    unsafe: str = ""  # why all edits of the file need --unsafe
    rulings: list[Ruling] = field(default_factory=list)
    claimed: dict[ast.AST, str] = field(default_factory=dict)  # node an edit removes -> rule code
    left: dict[ast.AST, tuple[str, Decision]] = field(default_factory=dict)  # with its surroundings

    @property
    def edits(self) -> list[Edit]:
        """All edits, each once."""
        return list({id(edit): edit for ruling in self.rulings for edit in ruling.edits}.values())

    @property
    def alone(self) -> list[Sequence[Edit]]:
        """The edits of each ruling that has any."""
        return [ruling.edits for ruling in self.rulings if ruling.edits]

    def requires(self, gone: set[ast.AST]) -> list[str]:
        """Modules that the new code imports; edits below nodes in `gone` don't count."""
        modules: dict[str, None] = {}
        for ruling in self.rulings:
            if isinstance(ruling.decision, Rewrite):
                if any(edit.node not in gone for edit in ruling.decision.edits):
                    modules.update(dict.fromkeys(ruling.decision.requires))
        return list(modules)


def undo(plan: Plan, ruling: Ruling, decision: Decision) -> None:
    """Change the decision on a construct, and withdraw everything its edits would have
    rewritten."""
    nodes = {node for edit in ruling.edits for node in covered(edit)}
    for node in nodes:
        plan.claimed.pop(node, None)
    for other in plan.rulings:
        if other is ruling or other.construct.node in nodes:
            other.decision = decision


def claim_earlier(plan: Plan) -> None:
    """If an outer edit removes a construct that was reported or kept earlier, mark it as rewritten.

    A line that is rewritten in part may contain other GPU-related text, which stays.
    """
    lines = {e.node for e in plan.edits if isinstance(e, SetString)}
    for ruling in plan.rulings:
        node = ruling.construct.node
        if isinstance(ruling.decision, Rewrite) or node not in plan.claimed:
            continue
        if ruling.construct.kind not in ("command", "setting") or node not in lines:
            ruling.code = plan.claimed[ruling.construct.node]
            ruling.decision = Rewrite(())


def withdraw(plan: Plan, edits: Sequence[Edit]) -> bool:
    """Report the constructs of edits that could not be placed, and all that depend on them.

    Returns False if the edits belong to set-up, not to a construct.
    """
    lost = {id(part) for edit in edits for part in (edit, *getattr(edit, "parts", ()))}
    codes, found = set(), False
    for ruling in plan.rulings:
        if isinstance(ruling.decision, Rewrite) and lost & {id(e) for e in ruling.decision.edits}:
            nodes = {n for edit in ruling.decision.edits for n in covered(edit)}
            for other in plan.rulings:
                if other.construct.node in nodes:
                    other.decision = _UNPLACED
            codes.update(nodes)
            ruling.decision, found = _UNPLACED, True
    for node in codes:
        plan.claimed.pop(node, None)
    return found


def restrict(plan: Plan, names: Names, only: Callable[[Range, str], bool]) -> None:
    """Leave all constructs except some unchanged. An edit that they share with others takes those
    along; an import takes its uses."""
    rewritten = [r for r in plan.rulings if isinstance(r.decision, Rewrite)]
    chosen = [r for r in rewritten if only(r.range, r.code)]
    uses = {
        use
        for ruling in plan.rulings
        if ruling.construct.kind == "library" and only(ruling.range, ruling.code)
        for use in _uses(names, ruling.construct.node)
    }
    before = -1
    while len(chosen) > before:
        before = len(chosen)
        edits = {id(edit) for ruling in chosen for edit in ruling.edits}
        nodes = uses | {ruling.construct.node for ruling in chosen}
        chosen = [
            ruling
            for ruling in rewritten
            if ruling.construct.node in nodes
            or any(id(e) in edits or not nodes.isdisjoint(covered(e)) for e in ruling.edits)
        ]
    plan.claimed = {node: r.code for r in chosen for e in r.edits for node in covered(e)}
    kept = {ruling.construct.node for ruling in chosen} | plan.claimed.keys()
    for ruling in rewritten:
        if ruling.construct.node not in kept:
            ruling.decision = Keep("left for now")


def _uses(names: Names, imported: ast.AST) -> Iterator[ast.AST]:
    """Where names bound by an import, or by one of its aliases, are used."""
    scope = names.scope_of(imported)
    for alias in getattr(imported, "names", [imported]):
        yield from names.uses(alias.asname or alias.name.partition(".")[0], scope)


_UNPLACED = Report(
    "no edit is safe here, in a string or beside other statements of a line; edit it by hand"
)
