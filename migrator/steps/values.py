"""Names of a run of statements: which it needs, which it gives a value, where that is read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.once import once
from migrator.steps.blocks import block_of


def stored_names(nodes: Iterable[ast.AST]) -> set[str]:
    return set().union(*map(_stored, nodes))


@once
def _stored(top: ast.AST) -> Set[str]:
    return frozenset(
        node.id
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def written_names(statements: Iterable[ast.AST]) -> set[str]:
    """Names that statements store, or whose values they change in place."""
    return set().union(*map(_written, statements))


@once
def _written(top: ast.AST) -> Set[str]:
    found = set(_stored(top))
    for node in ast.walk(top):
        match node:
            case ast.Call(func=ast.Attribute(attr=method, value=ast.Name(id=name))):
                if method.endswith("_") and not method.endswith("__"):
                    found.add(name)
    return found


@once
def loaded_names(top: ast.AST) -> Sequence[str]:
    """Names that are read, also those that are written by `+=`, but not those of own loops."""
    own: set[str] = set()
    for node in ast.walk(top):
        if isinstance(node, ast.For | ast.comprehension):
            own |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    found = []
    for node in in_order([top]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            found.append(node.id)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return tuple(found)


def position(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def in_order(nodes: Iterable[ast.AST]) -> list[ast.expr | ast.stmt]:
    """The nodes in the order in which they are written."""
    found = [
        node for top in nodes for node in ast.walk(top) if isinstance(node, ast.expr | ast.stmt)
    ]
    return sorted(found, key=position)


def new_names(name: str, count: int, taken: set[str]) -> Iterator[str]:
    candidates = (f"{name}_{n}" if n > 1 else name for n in range(1, 1000))
    free = (candidate for candidate in candidates if candidate not in taken)
    return (next(free) for _ in range(count))


def needed_names(statements: Iterable[ast.stmt], known: set[str]) -> tuple[list[str], set[str]]:
    """Names that are read before they surely have a value; and those that have one at the end."""
    needed: dict[str, None] = {}
    known = set(known)

    def read(*nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                needed.update(dict.fromkeys(n for n in loaded_names(node) if n not in known))

    for statement in statements:
        match statement:
            case ast.With(items=items, body=body):
                for item in items:
                    read(item.context_expr)
                    known |= stored_names([item])
                inner, known = needed_names(body, known)
                needed.update(dict.fromkeys(inner))
            case ast.If(test=test, body=body, orelse=orelse):
                read(test)
                one, after_one = needed_names(body, known)
                other, after_other = needed_names(orelse, known)
                needed.update(dict.fromkeys([*one, *other]))
                known = after_one & after_other
            case ast.For(target=target, iter=source, body=body, orelse=orelse):
                read(source)
                inner, _ = needed_names([*body, *orelse], known | stored_names([target]))
                needed.update(dict.fromkeys(inner))
            case _:
                read(statement)
                known |= stored_names([statement])
    return list(needed), known


def surely_known(
    names: Names, at: ast.stmt, moved: Sequence[ast.stmt] = (), within: ast.stmt | None = None
) -> set[str]:
    """Names that have a value in front of a statement, whatever happened; `moved` are not there.

    With `within`, a loop: those that got it in the same round.
    """
    known: set[str] = set()
    passed = set(moved)
    statement: ast.stmt = at
    while True:
        parent = names.parents.get(statement)
        block = block_of(names, statement)
        for other in block[: block.index(statement)]:
            if other in passed:
                continue
            if other not in names.given:
                names.given[other] = _assigned_by(other)
            known |= names.given[other]
        match parent:
            case ast.For(target=target):
                known |= stored_names([target])
            case ast.With(items=items):
                known |= stored_names(items)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return known | set(names.scopes[parent].bindings) & {
                    a.arg for a in ast.walk(parent.args) if isinstance(a, ast.arg)
                }
        if not isinstance(parent, ast.stmt) or parent is within:
            return known
        statement = parent


def _assigned_by(statement: ast.stmt) -> set[str]:
    """What has a value behind a statement, however it ended."""
    match statement:
        case ast.Try():
            return _after_try(statement) | stored_names([statement])
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name} | stored_names([statement])
    return needed_names([statement], set())[1]


def _after_try(statement: ast.Try) -> set[str]:
    """What has a value behind a `try`, however it ended."""
    _, after = needed_names([*statement.body, *statement.orelse], set())
    for handler in statement.handlers:
        last = handler.body[-1]
        if not isinstance(last, ast.Raise | ast.Return | ast.Continue | ast.Break):
            after &= needed_names(handler.body, set())[1]
    return after | needed_names(statement.finalbody, set())[1]
