"""Values with an autograd graph: moving code must not cut them off from it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.once import once, once_in
from migrator.analysis.training.loops import reads
from migrator.steps.blocks import loop_of
from migrator.steps.computation import Computation
from migrator.steps.region import WAITING_FUNCTIONS
from migrator.steps.values import in_order, loaded_names, position, stored_names

_DETACHING = ("detach", "data", "item", "numpy", "cpu", "tolist", "shape", "size", "dtype",
              "device", "ndim", "dim", "numel", "detach_")  # fmt: skip


def with_graph(code: Computation, around: ast.stmt, moved: Sequence[ast.stmt]) -> dict[str, int]:
    """Names that get a value with a graph outside of a step, each with its line.

    This is an estimate; the runtime checks, and compiles no call with such an argument.
    """
    inside = {node for statement in moved for node in _giving(statement)}
    giving = [(node, gift) for node, gift in _gifts(code, around).items() if node not in inside]
    found: dict[str, int] = {}
    while True:
        before = len(found)
        for node, gift in giving:
            if gift.graph or not found.keys().isdisjoint(gift.sources):
                for name in gift.names:
                    found.setdefault(name, node.lineno)
        if len(found) == before:
            return found


_Giving = ast.For | ast.Assign | ast.AugAssign


@dataclass(frozen=True)
class _Gift:
    """The names that a statement assigns, and where their graph comes from."""

    names: Set[str]
    sources: Sequence[str]  # names whose graph they inherit
    graph: bool  # the value starts a graph


@once_in
def _gifts(code: Computation, around: ast.stmt) -> dict[_Giving, _Gift]:
    found: dict[_Giving, _Gift] = {}
    for node in _giving(around):
        match node:
            case ast.For(target=target, iter=value):
                found[node] = _Gift(stored_names([target]), loaded_names(value), False)
            case ast.Assign(value=value) | ast.AugAssign(value=value) if not reads(node):
                gift = _Gift(stored_names([node]), _kept_graph(value), code.has_graph(value))
                found[node] = gift
    return found


@once
def _giving(top: ast.stmt) -> Sequence[_Giving]:
    """The assignments in a statement."""
    return [n for n in ast.walk(top) if isinstance(n, _Giving)]


def _kept_graph(value: ast.expr) -> Sequence[str]:
    """Names that an expression takes data from without detaching it."""
    if any(isinstance(n, ast.Attribute) and n.attr in _DETACHING for n in ast.walk(value)):
        return ()
    return loaded_names(value)


def only_detached(name: str, moved: Sequence[ast.stmt]) -> bool:
    """Whether a step only uses `name.detach()`, `name.data` or the shape of a name."""
    loads = [
        n for s in moved for n in ast.walk(s)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]  # fmt: skip
    fine = [
        n.value for s in moved for n in ast.walk(s)
        if isinstance(n, ast.Attribute) and n.attr in _DETACHING
    ]  # fmt: skip
    return all(load in fine for load in loads)


def is_detached_first(code: Computation, name: str, moved: list[ast.stmt]) -> bool:
    """Whether `states = detach(states)` comes before every other use of the states."""
    uses = [n for n in in_order(moved) if isinstance(n, ast.Name) and n.id == name]
    first = next((n for n in uses if isinstance(n.ctx, ast.Load)), None)
    statement = code.names.statement(first) if first is not None else None
    if not isinstance(statement, ast.Assign) or name not in stored_names([statement]):
        return False
    block = code.names.parents[statement]
    if any(position(n) < position(statement) or block not in code.names.ancestors(n) for n in uses):
        return False
    parts: list[ast.AST] = [statement.value]
    for call in ast.walk(statement.value):
        if isinstance(call, ast.Call):
            definition = code.flow.called_definition(call)
            parts += [definition] if isinstance(definition, ast.FunctionDef) else []
    return any(
        isinstance(n, ast.Attribute) and n.attr in ("detach", "data")
        for part in parts
        for n in ast.walk(part)
    )


def is_harmless(names: Names, use: ast.Name) -> bool:
    """Whether a use reads, detaches or compares a value, so that no gradient flows through it."""
    parent = names.parents.get(use)
    if isinstance(parent, ast.Attribute) and parent.attr in _DETACHING:
        return True
    for above in names.ancestors(use):
        if isinstance(above, ast.Compare | ast.FormattedValue):
            return True
        if isinstance(above, ast.Call):
            function = above.func
            if isinstance(function, ast.Name) and function.id in WAITING_FUNCTIONS:
                return True
            if isinstance(function, ast.Attribute) and function.attr in ("item", "format"):
                return True
        if isinstance(above, ast.Attribute) and above.attr in ("item", "detach", "data", "cpu"):
            return True
        if isinstance(above, ast.With) and any(
            "no_grad" in ast.unparse(item.context_expr) for item in above.items
        ):
            return True
        if isinstance(above, ast.For | ast.While | ast.FunctionDef):
            return False
    return False


def trained_use(
    code: Computation, uses: Iterable[ast.Name], backward: Set[ast.AST]
) -> ast.Name | None:
    """The first of some uses of a value, or of what is made of it, that gets a backward pass or is
    kept for one."""
    names = code.names
    seen: set[ast.Name] = set()
    waiting = [*uses]
    while waiting:
        use = waiting.pop()
        statement = names.statement(use)
        if use in seen or statement is None or is_harmless(names, use) or reads(statement):
            continue
        seen.add(use)
        if any(n in backward for n in ast.walk(statement)) or keeps(statement):
            return use
        for made in stored_names([statement]):
            waiting += code.reads.later(made, statement, loop_of(names, statement), [statement])
    return None


def keeps(statement: ast.stmt) -> bool:
    """Whether a value escapes: `losses.append(loss)`, `return loss`."""
    match statement:
        case ast.Return():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append" | "extend"))):
            return True
    return False
