"""Where a value is read later, before another one takes its place."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import stored_names
from migrator.analysis.syntax.scopes import Scope
from migrator.analysis.training.find_optimizer_steps import is_backward

_Block = int  # the identity of a list of statements
_NONE: _Block = 0
_Place = tuple[int, int]


@dataclass
class _InOrder:
    """Nodes in the order in which they are written."""

    nodes: list[ast.Name] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)

    def add(self, node: ast.Name) -> None:
        self.nodes.append(node)
        self.places.append(_position(node))

    def between(self, first: _Place, last: _Place) -> list[ast.Name]:
        """Those at `first`, and up to `last`."""
        return self.nodes[bisect_left(self.places, first) : bisect_right(self.places, last)]


@dataclass
class _Reads:
    """The reads of one name; and the statements that surely give it another value, by block.

    A read is sorted by the innermost block in which such a statement stands in front of it: what
    has its value from elsewhere is not what it sees.
    """

    below: dict[_Block, _InOrder]
    givers: dict[_Block, list[ast.stmt]]


class LaterReads:
    """The reads of all names of one file; each name is looked at once."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._of: dict[tuple[str, Scope], _Reads] = {}
        self._given: dict[ast.stmt, set[str]] = {}

    def later(self, name: str, statement: ast.stmt) -> list[ast.Name]:
        """Where the value that a name has behind a statement is read by others."""
        scope = self._names.scope_of(statement)
        reads = self._of.get((name, scope))
        if reads is None:
            reads = self._of[name, scope] = self._sorted(name, scope)
        inside = {id(node) for node in ast.walk(statement)}
        found = [*self._ahead(name, reads, statement), *self._behind(reads, statement)]
        return [
            use for use in found
            if id(use) not in inside and not _is_of_other_loop(self._names, use, statement)
        ]  # fmt: skip

    def backward(self, scope: Scope) -> Set[ast.AST]:
        """Where gradients are asked for."""
        return self._backward.get(scope, set())

    @cached_property
    def _backward(self) -> Mapping[Scope, Set[ast.AST]]:
        found: dict[Scope, set[ast.AST]] = {}
        for node in self._names.order:
            if is_backward(node) or self._names.qualified(node) == "torch.autograd.grad":
                found.setdefault(self._names.scope_of(node), set()).add(node)
        return found

    def _sorted(self, name: str, scope: Scope) -> _Reads:
        names = self._names
        found: dict[_Block, dict[ast.stmt, None]] = {}
        for store in names.by_id.get(name, ()):
            if isinstance(store.ctx, ast.Store) and names.scope_of(store) is scope:
                for block, statement in self._around(store):
                    if name not in self._gives(statement):
                        break
                    found.setdefault(id(block), {})[statement] = None
        givers = {block: sorted(given, key=_position) for block, given in found.items()}
        reads = _Reads({}, givers)
        for use in sorted([*names.uses(name, scope), *_added_to(names, name)], key=_position):
            reads.below.setdefault(self._given_in(use, givers), _InOrder()).add(use)
        return reads

    def _given_in(self, use: ast.Name, givers: dict[_Block, list[ast.stmt]]) -> _Block:
        for block, statement in self._around(use):
            first = givers.get(id(block), [statement])[0]
            if _position(first) < _position(statement):
                return id(block)
        return _NONE

    def _ahead(self, name: str, reads: _Reads, statement: ast.stmt) -> list[ast.Name]:
        """Reads in the next iteration, in front of the statement."""
        loop = _loop_around(self._names, statement)
        if loop is None or (isinstance(loop, ast.For) and name in stored_names([loop.target])):
            return []
        first = _position(statement)
        outside = [_NONE, *(id(block) for block, _ in self._around(loop))]
        return [
            use
            for block in outside if block in reads.below
            for use in reads.below[block].between(_position(loop), first)
            if loop in self._names.ancestors(use)
        ]  # fmt: skip

    def _behind(self, reads: _Reads, statement: ast.stmt) -> list[ast.Name]:
        """Reads behind the statement, up to where the name surely has another value."""
        last = _end(statement)
        around = list(self._around(statement))
        end = min((_end(s) for s in self._next_givers(reads, around, last)), default=(1 << 60, 0))
        first = (statement.lineno, statement.col_offset + 1)
        found: dict[ast.Name, None] = {}
        for block in (_NONE, *(id(block) for block, _ in around)):
            if block in reads.below:
                found |= dict.fromkeys(reads.below[block].between(first, end))
        return sorted((use for use in found if _position(use) <= end), key=_position)

    def _next_givers(
        self, reads: _Reads, around: Sequence[tuple[list[ast.stmt], ast.stmt]], last: _Place
    ) -> Iterator[ast.stmt]:
        """In each block around a statement, what gives the name a value next, if reached."""
        for block, at in around:
            givers = reads.givers.get(id(block), [])
            number = bisect_right(givers, last, key=_position)
            for giver in givers[number : number + 1]:
                between = block[block.index(at) + 1 : block.index(giver) + 1]
                if not any(isinstance(n, ast.Break | ast.Continue)
                           for s in between for n in ast.walk(s)):  # fmt: skip
                    yield giver

    def _around(self, node: ast.AST) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
        """The blocks around a node, from the inside, and the statement of each that holds it."""
        at: ast.AST | None = node
        while at is not None:
            if isinstance(at, ast.stmt) and (block := self._names.block(at)):
                yield block, at
            at = self._names.parents.get(at)

    def _gives(self, statement: ast.stmt) -> set[str]:
        """Names that have another value behind a statement, whatever they were before."""
        if statement not in self._given:
            self._given[statement] = self._find_given(statement)
        return self._given[statement]

    def _find_given(self, statement: ast.stmt) -> set[str]:
        match statement:
            case ast.Assign(targets=targets):
                return stored_names(targets)
            case ast.AnnAssign(target=target, value=ast.expr()):
                return stored_names([target])
            case ast.With(items=items, body=body) if all(map(self._is_torchs, items)):
                return self._of_block(body)
            case ast.If(body=body, orelse=orelse):
                return self._of_block(body) & self._of_block(orelse)
        return set()

    def _is_torchs(self, item: ast.withitem) -> bool:
        """`torch.no_grad()`, which goes on for no error."""
        call = item.context_expr
        name = self._names.qualified(call.func) if isinstance(call, ast.Call) else None
        return name is not None and name.startswith("torch.")

    def _of_block(self, block: Sequence[ast.stmt]) -> set[str]:
        return {name for statement in block for name in self._gives(statement)}


def _position(node: ast.expr | ast.stmt) -> _Place:
    return node.lineno, node.col_offset


def _end(node: ast.stmt) -> _Place:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _added_to(names: Names, name: str) -> list[ast.Name]:
    """Where `+=` reads a name."""
    stores = names.by_id.get(name, ())
    return [n for n in stores if isinstance(names.parents.get(n), ast.AugAssign)
            and isinstance(n.ctx, ast.Store)]  # fmt: skip


def _is_of_other_loop(names: Names, use: ast.Name, statement: ast.stmt) -> bool:
    """True in a loop over the name itself, which gives it a value in each of its iterations."""
    at: ast.AST = use
    for above in names.ancestors(use):
        if isinstance(above, ast.For) and at in above.body:
            if use.id in stored_names([above.target]) and above not in names.ancestors(statement):
                return True
        at = above
    return False


def _loop_around(names: Names, at: ast.AST) -> ast.stmt | None:
    """The innermost loop of the same function around a statement."""
    for above in names.ancestors(at):
        if isinstance(above, ast.For | ast.While):
            return above
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None
    return None
