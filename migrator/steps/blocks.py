"""Where statements stand: their block, their loop, what is in front of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Set

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.once import once
from migrator.steps.step import NotMovable


def block_of(names: Names, statement: ast.stmt) -> list[ast.stmt]:
    block = names.block(statement)
    if not block:
        raise NotMovable("the optimizer's step is not in a block of statements")
    return block


def loop_of(names: Names, at: ast.AST) -> ast.stmt | None:
    """The innermost loop of the same function around a statement."""
    for above in names.ancestors(at):
        if isinstance(above, ast.For | ast.While):
            return above
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None
    return None


def _outermost(names: Names, loop: ast.stmt) -> ast.stmt:
    """The loop that no other loop of the same function holds."""
    at: ast.AST | None = loop
    outermost = loop
    while at is not None and not isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(at, ast.For | ast.While):
            outermost = at
        at = names.parents.get(at)
    return outermost


def loops_of(names: Names, at: ast.stmt) -> tuple[ast.stmt | None, ast.stmt | None]:
    """The innermost loop around a statement; and the outermost one, or the function."""
    loop = loop_of(names, at)
    return loop, _outermost(names, loop) if loop is not None else names.function(at)


COUNTER = re.compile(
    r"^(?:i|j|it|iters?|iteration|step|steps|epoch|ep|n_?iter|batch_?(?:idx|i|id|index)|global_?step"
    r"|(?:cur|current)_?(?:iter|epoch|step)|idx)$", re.I
)  # fmt: skip


def counter_names(names: Names, loop: ast.stmt | None, around: ast.AST) -> set[str]:
    """Names that hold another number in every round."""
    found: set[str] = set()
    match loop:
        case None:
            bindings = names.scopes[around].bindings
            found |= {n for n in bindings if COUNTER.match(n)}
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *more]), iter=ast.Call() as source):
            if "enumerate" in ast.unparse(source):
                found.add(name)
            match more, source.args:  # for number, start in enumerate(range(…))
                case [ast.Name(id=start)], [ast.Call(func=ast.Name(id="range")), *_]:
                    found.add(start)
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
            found.add(name)
    return found | _counted(around)


@once
def _counted(around: ast.AST) -> Set[str]:
    """Names to which a number is added."""
    return frozenset(
        node.target.id
        for node in ast.walk(around)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    )


def runs_repeatedly(names: Names, at: ast.AST, depth: int = 3) -> bool:
    """False for what a program runs once: at its top, or in a function called from there."""
    function = names.function(at)
    if function is None or function.name == "main":
        return False
    calls = [
        n for n in names.order
        if isinstance(n, ast.Name | ast.Attribute) and names.call_of(n)
        and (n.id if isinstance(n, ast.Name) else n.attr) == function.name
    ]  # fmt: skip
    return not calls or any(
        loop_of(names, call) is not None or (depth > 0 and runs_repeatedly(names, call, depth - 1))
        for call in calls
    )
