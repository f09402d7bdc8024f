"""Where a value of a step is read outside of it, before another one takes its place."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scopes import Scope
from migrator.analysis.training.loops import is_backward
from migrator.steps.values import position, stored_names, surely_known

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
        self.places.append(position(node))

    def between(self, first: _Place, last: _Place) -> list[ast.Name]:
        """Those at `first`, and up to `last`."""
        return self.nodes[bisect_left(self.places, first) : bisect_right(self.places, last)]


@dataclass
class _Reads:
    """The reads of one name; and the statements that surely give it another value, by block.

    A read is sorted by the innermost block in which such a statement stands in front of it: what
    has its value from elsewhere is not what it sees.
    """

    all: _InOrder
    below: dict[_Block, _InOrder]
    givers: dict[_Block, list[ast.stmt]]


class Reads:
    """The reads of all names of one file; each name is looked at once."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._of: dict[tuple[str, Scope], _Reads] = {}
        self._given: dict[ast.stmt, set[str]] = {}

    def later(
        self, name: str, call: ast.stmt, loop: ast.stmt | None, moved: Sequence[ast.stmt]
    ) -> list[ast.Name]:
        """Where a value that `moved` statements make is read by others.

        Args:
            call: what takes their place, in this loop.
        """
        scope = self._names.scope_of(call)
        reads = self._of.get((name, scope))
        if reads is None:
            reads = self._of[name, scope] = self._sorted(name, scope)
        inside = {id(node) for statement in moved for node in ast.walk(statement)}
        found = [*self._ahead(name, reads, call, loop, moved), *self._behind(reads, call, moved)]
        return [
            use for use in found
            if id(use) not in inside and not _is_of_other_loop(self._names, use, call)
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
        givers = {block: sorted(given, key=position) for block, given in found.items()}
        reads = _Reads(_InOrder(), {}, givers)
        for use in sorted([*names.uses(name, scope), *_added_to(names, name)], key=position):
            reads.all.add(use)
            reads.below.setdefault(self._given_in(use, givers), _InOrder()).add(use)
        return reads

    def _given_in(self, use: ast.Name, givers: dict[_Block, list[ast.stmt]]) -> _Block:
        for block, statement in self._around(use):
            first = givers.get(id(block), [statement])[0]
            if position(first) < position(statement):
                return id(block)
        return _NONE

    def _ahead(
        self, name: str, reads: _Reads, call: ast.stmt, loop: ast.stmt | None,
        moved: Sequence[ast.stmt],
    ) -> list[ast.Name]:  # fmt: skip
        """Reads in the next round, in front of the call."""
        if loop is None or (isinstance(loop, ast.For) and name in stored_names([loop.target])):
            return []
        first = position(call)
        outside = [_NONE, *(id(block) for block, _ in self._around(loop))]
        found = {
            use: None
            for block in outside if block in reads.below
            for use in reads.below[block].between(position(loop), first)
        }  # fmt: skip
        found |= dict.fromkeys(reads.all.between(min(map(position, moved)), first))
        known = {
            use: surely_known(self._names, self._names.statement(use) or call, moved, loop)
            for use in found
            if loop in self._names.ancestors(use)
        }
        return [use for use, given in known.items() if name not in given]

    def _behind(self, reads: _Reads, call: ast.stmt, moved: Sequence[ast.stmt]) -> list[ast.Name]:
        """Reads behind the call, up to where the name has another value whatever happens."""
        last = max(map(_end, moved))
        around = list(self._around(call))
        end = min((_end(s) for s in self._next_givers(reads, around, last)), default=(1 << 60, 0))
        first = (call.lineno, call.col_offset + 1)
        found = dict.fromkeys(reads.all.between(first, (last[0] + 1, -1)))
        for block in (_NONE, *(id(block) for block, _ in around)):
            if block in reads.below:
                found |= dict.fromkeys(reads.below[block].between(first, end))
        return sorted((use for use in found if position(use) <= end), key=position)

    def _next_givers(
        self, reads: _Reads, around: Sequence[tuple[list[ast.stmt], ast.stmt]], last: _Place
    ) -> Iterator[ast.stmt]:
        """In each block around a call, what gives the name a value next, if that is reached."""
        for block, at in around:
            givers = reads.givers.get(id(block), [])
            number = bisect_right(givers, last, key=position)
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


def _end(node: ast.stmt) -> _Place:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _added_to(names: Names, name: str) -> list[ast.Name]:
    """Where `+=` reads a name."""
    stores = names.by_id.get(name, ())
    return [n for n in stores if isinstance(names.parents.get(n), ast.AugAssign)
            and isinstance(n.ctx, ast.Store)]  # fmt: skip


def _is_of_other_loop(names: Names, use: ast.Name, call: ast.stmt) -> bool:
    """True in a loop over the name itself, which gives it a value in each of its rounds."""
    at: ast.AST = use
    for above in names.ancestors(use):
        if isinstance(above, ast.For) and at in above.body:
            if use.id in stored_names([above.target]) and above not in names.ancestors(call):
                return True
        at = above
    return False
