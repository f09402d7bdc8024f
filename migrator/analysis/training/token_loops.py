"""Loops that generate text token by token, in a tensor that grows: those of a few known forms.

    for _ in range(new_tokens):
        logits = model(tokens[:, -block_size:])
        token = logits[:, -1, :].argmax(-1, keepdim=True)
        tokens = torch.cat((tokens, token), dim=1)

In these the model receives all of the tokens or the last of them, only the last position of its
output is used, and nothing else reads the tokens until the loop is over.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.training.find_optimizer_steps import is_model
from migrator.analysis.values.flow import Flow

_JOINS = ("torch.cat", "torch.concat", "torch.concatenate")


@dataclass(frozen=True)
class TokenLoop:
    """The parts of such a loop."""

    loop: ast.For | ast.While
    joined: ast.Assign  # tokens = torch.cat((tokens, token), dim=1)
    token: ast.expr  # what is appended
    window: ast.expr  # `tokens`, or the last of them
    limit: ast.expr | None  # the number of these
    call: ast.Call  # of the model
    last: ast.Subscript  # outputs[:, -1, :]

    @property
    def name(self) -> str:
        """The name of the growing tensor."""
        target = self.joined.targets[0]
        assert isinstance(target, ast.Name)
        return target.id


@dataclass(frozen=True)
class CollectingLoop:
    """A loop that passes a model something else, and joins tokens for later code."""

    loop: ast.For | ast.While
    joined: ast.Assign  # tokens = torch.cat((tokens, token), dim=1)
    name: str  # of the growing tensor
    token: ast.expr  # what is appended


def collecting_loop(names: Names, flow: Flow, loop: ast.For | ast.While) -> CollectingLoop | None:
    """Recognize a loop without gradients that collects a model's results."""
    return None if loop.orelse else _Reader(names, flow, loop).collected()


def token_loop(names: Names, flow: Flow, loop: ast.For | ast.While) -> TokenLoop | None:
    """Recognize a loop without gradients that has such a form."""
    return None if loop.orelse else _Reader(names, flow, loop).read()


class _Reader:
    """Reads one loop."""

    def __init__(self, names: Names, flow: Flow, loop: ast.For | ast.While) -> None:
        self._names, self._flow, self._loop = names, flow, loop
        self._statements = list(_flat(loop.body))
        # The condition of a `while` is evaluated in each iteration, the header of a `for` isn't.
        parts = [*loop.body, loop.test if isinstance(loop, ast.While) else loop.target]
        inside = [n for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)]
        self._loads = [n for n in inside if self._reads(n)]
        self._stores = [n for n in inside if not isinstance(n.ctx, ast.Load)]
        self._around = [loop, *itertools.takewhile(_is_no_function, names.ancestors(loop))]

    def read(self) -> TokenLoop | None:
        if any(map(_may_go_on, self._around)):
            return None  # after an exception the tokens are read as they were
        joined = [found for s in self._statements if (found := self._joined(s)) is not None]
        calls = [
            node
            for statement in self._statements
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and is_model(self._flow, node.func)
        ]
        if len(joined) != 1 or len(calls) != 1:
            return None
        ((statement, old, token),) = joined
        (call,) = calls
        given = self._given(old, call)
        last = self._last_of(call)
        if given is None or last is None:
            return None
        window, limit = given
        if self._is_seen_elsewhere(old, window) or not self._is_in_order(
            window, call, last, statement
        ):
            return None
        return TokenLoop(self._loop, statement, token, window, limit, call, last)

    def collected(self) -> CollectingLoop | None:
        joined = [found for s in self._statements if (found := self._joined(s)) is not None]
        nodes = [node for statement in self._statements for node in ast.walk(statement)]
        asks = any(isinstance(n, ast.Call) and is_model(self._flow, n.func) for n in nodes)
        if len(joined) != 1 or not asks or any(map(_may_go_on, self._around)):
            return None
        ((statement, old, token),) = joined
        if self._is_seen_elsewhere(old, old) or not self._stays(token):
            return None
        return CollectingLoop(self._loop, statement, old.id, token)

    def _stays(self, token: ast.expr) -> bool:
        """Whether the stored value comes from calls, and is not written to."""
        if isinstance(token, ast.Call):
            return True
        if not isinstance(token, ast.Name):
            return False
        uses = [n for part in self._loop.body for n in ast.walk(part) if _is_name(n, token.id)]
        stores = [n for n in uses if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
        made = [self._names.statement(store) for store in stores]
        new = (isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) for s in made)
        return bool(made) and all(new) and not any(map(self._is_written, uses))

    def _is_written(self, use: ast.AST) -> bool:
        """`x[0] = y`, `x += y`, `x.add_(y)`, `out=x`"""
        match self._names.parents.get(use):
            case ast.Subscript(ctx=ast.Store()) | ast.AugAssign():
                return True
            case ast.Attribute(attr=name):
                return name.endswith("_") or name == "data"
            case ast.keyword(arg="out"):
                return True
        return False

    def _joined(self, statement: ast.stmt) -> tuple[ast.Assign, ast.Name, ast.expr] | None:
        """`tokens = torch.cat((tokens, token), dim=1)`, with the old tokens and the new one."""
        match statement:
            case ast.Assign(
                [ast.Name(name)],
                ast.Call(func, [ast.Tuple([old, token]) | ast.List([old, token]), *_]) as call,
            ):
                dim = argument(call, 1, "dim", "axis")
                known = len(call.args) + len(call.keywords) == 2  # without `out`
                along = known and dim is not None and ast.unparse(dim) in ("1", "-1")
                if along and self._names.qualified(func) in _JOINS:
                    if isinstance(old, ast.Name) and old.id == name:
                        return statement, old, token
        return None

    # ---- what the model is given -----------------------------------------------------------------

    def _given(self, tokens: ast.Name, call: ast.Call) -> tuple[ast.expr, ast.expr | None] | None:
        """The expression of all or the last tokens that is its first argument."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not given or not all(isinstance(other, ast.Constant) for other in given[1:]):
            return None  # a cache or a mask has a length, too
        if any(keyword.arg is None for keyword in call.keywords):
            return None
        first = given[0]
        if isinstance(first, ast.Name) and first.id != tokens.id:
            made = [v for s in self._statements if (v := _assigned(s, first.id)) is not None]
            if len(made) != 1 or not self._is_read_once(first):
                return None
            first = made[0]
        if _is_name(first, tokens.id):
            return first, None
        limit = _limit(first, tokens.id)
        return None if limit is None or self._changes(limit) else (first, limit)

    def _changes(self, node: ast.AST) -> bool:
        """Whether its value changes in each iteration, as far as names tell."""
        stored = {n.id for n in self._stores}
        return any(isinstance(n, ast.Name) and n.id in stored for n in ast.walk(node))

    def _is_read_once(self, name: ast.Name) -> bool:
        once = self._count(name.id) == 1 and sum(n.id == name.id for n in self._stores) == 1
        return once and not self._escapes(name.id)

    def _is_in_order(self, window: ast.expr, call: ast.Call, last: ast.expr, join: ast.AST) -> bool:
        """Whether each iteration slices, calls and chooses, with no append in between."""
        nodes = (window, call, last, join)
        for node in nodes[:3]:
            for above in self._names.ancestors(node):
                if isinstance(above, ast.Lambda | ast.GeneratorExp | ast.FunctionDef):
                    return False  # this may run later
                if above is self._loop:
                    break
        looks, asks, chooses, joins = map(self._place, nodes)
        return looks <= asks <= chooses and not looks < joins < chooses

    def _place(self, node: ast.AST) -> int:
        above = {node, *self._names.ancestors(node)}
        return next(i for i, statement in enumerate(self._statements) if statement in above)

    def _is_seen_elsewhere(self, tokens: ast.Name, window: ast.expr) -> bool:
        """Whether code besides the model and the join may read the tokens before the end."""
        allowed = {tokens, *ast.walk(window)}
        if any(n.id == tokens.id and n not in allowed for n in self._loads):
            return True
        return sum(n.id == tokens.id for n in self._stores) > 1 or self._is_shared(tokens.id)

    # ---- what it returns -------------------------------------------------------------------------

    def _last_of(self, call: ast.Call) -> ast.Subscript | None:
        """The only expression that reads it: `outputs[:, -1, :]`."""
        value = self._whole(call)
        last = self._last_position(value)
        statement = self._names.parents.get(value)
        if last is not None or not isinstance(statement, ast.Assign):
            return last
        match statement.targets:
            case [ast.Name(name)] if statement.value is value:
                unused: list[ast.expr] = []
            case [ast.Tuple([ast.Name(name), *unused])] if statement.value is call:
                pass
            case _:
                return None
        if statement not in self._statements or not all(map(self._is_unread, unused)):
            return None
        between = []
        for later in self._statements[self._statements.index(statement) + 1 :]:
            reads = [n for n in ast.walk(later) if n in self._loads and _is_name(n, name)]
            if reads:
                break
            between.append(later)
        else:
            return None
        replaced = _assigned(later, name) is not None
        if not replaced and (self._count(name) > 1 or self._escapes(name)):
            return None
        for part in between if replaced else [*between, later]:
            for node in ast.walk(part):
                leaves = isinstance(node, ast.Break | ast.Continue) and replaced
                if leaves or (node in self._stores and _is_name(node, name)):
                    return None
        if self._is_shared(name):
            return None
        (read, *more) = reads
        assert isinstance(read, ast.Name)
        return None if more else self._last_position(self._whole(read))

    def _last_position(self, value: ast.expr) -> ast.Subscript | None:
        """`value[:, -1]` or `value[:, -1, :]`, with the value in it."""
        match self._names.parents.get(value):
            case ast.Subscript(of, ast.Tuple([first, ast.UnaryOp(ast.USub(), one), *rest])) as last:
                is_one = isinstance(one, ast.Constant) and one.value == 1
                if of is value and is_one and len(rest) <= 1:
                    return last if all(map(_is_whole, [first, *rest])) else None
        return None

    def _count(self, name: str) -> int:
        return sum(n.id == name for n in self._loads)

    def _whole(self, node: ast.expr) -> ast.expr:
        """`node`, `node.logits` or `node[0]`, whichever is there."""
        match self._names.parents.get(node):
            case ast.Attribute(attr="logits") as above:
                return above
            case ast.Subscript(slice=ast.Constant(value=0)) as above if above.value is node:
                return above
        return node

    def _is_unread(self, target: ast.expr) -> bool:
        return isinstance(target, ast.Name) and not (
            self._count(target.id) or self._escapes(target.id)
        )

    # ---- who else reads a name -------------------------------------------------------------------

    def _reads(self, name: ast.Name) -> bool:
        """`name` and `name += 1`"""
        above = self._names.parents.get(name)
        augmented = isinstance(above, ast.AugAssign) and above.target is name
        return augmented or isinstance(name.ctx, ast.Load)

    def _is_shared(self, name: str) -> bool:
        """Whether other functions may read it."""
        own = self._names.function(self._loop)
        scope = self._names.scope_of(self._loop)
        return any(
            self._names.function(use) is not own
            or any(isinstance(above, ast.Lambda) for above in self._names.ancestors(use))
            for use in self._names.uses(name, scope)
        ) or any(
            isinstance(node, ast.Global | ast.Nonlocal) and name in node.names
            for node in ast.walk(self._names.tree)
        )

    def _escapes(self, name: str) -> bool:
        """Whether a value that the loop assigns to a name may be read outside of its body."""
        scope = self._names.scope_of(self._loop)
        body = {node for part in self._loop.body for node in ast.walk(part)}
        named = [n for n in self._names.by_id.get(name, ()) if self._names.scope_of(n) is scope]
        added = [n for n in named if isinstance(self._names.parents.get(n), ast.AugAssign)]
        return self._is_shared(name) or any(
            n not in body and self._may_follow(n) for n in (*self._names.uses(name, scope), *added)
        )

    def _may_follow(self, use: ast.Name) -> bool:
        """Whether the loop may have run since the name was assigned."""
        above = {use, *self._names.ancestors(use)}
        rounds = any(isinstance(a, ast.For | ast.While) and a in above for a in self._around)
        if not rounds and use.lineno < self._loop.lineno:
            return False
        at = self._names.statement(use)
        while at is not None and at not in self._around:
            block = self._names.block(at)
            for before in reversed(block[: block.index(at)] if block else []):
                if before in self._around:
                    break
                if _gives(before, use.id):
                    return False
            parent = self._names.parents.get(at)
            at = None if parent is None else self._names.statement(parent)
        return True


def _is_no_function(node: ast.AST) -> bool:
    return not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _may_go_on(node: ast.AST) -> bool:
    """Whether the program may continue after an exception in it."""
    match node:
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return any("suppress" in ast.unparse(item.context_expr) for item in items)
    return isinstance(node, ast.Try) or type(node).__name__ == "TryStar"


def _gives(statement: ast.stmt, name: str) -> bool:
    """Whether it always assigns to a name."""
    if not isinstance(statement, ast.Assign):
        return False
    targets = [n for t in statement.targets for n in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return any(_is_name(target, name) for target in targets)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that each iteration runs."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _flat(statement.body)
        else:
            yield statement


def _is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    """The value that a statement assigns to a name."""
    match statement:
        case ast.Assign([ast.Name(bound)], value) if bound == name:
            return value
    return None


def _limit(window: ast.expr, tokens: str) -> ast.expr | None:
    """The `n` of `tokens[:, -n:]`, also if it is chosen only for more than `n`."""
    match window:
        case ast.Subscript(
            value=ast.Name(id=name),
            slice=ast.Tuple(elts=[first, ast.Slice(ast.UnaryOp(ast.USub(), limit), None, None)]),
        ):
            return limit if name == tokens and _is_whole(first) else None
        case ast.IfExp(ast.Compare(length, [ast.LtE() | ast.Lt()], [most]), whole, cut):
            asked = ast.unparse(length) in (f"{tokens}.size(1)", f"{tokens}.shape[1]")
            last = _limit(cut, tokens)
            same = last is not None and ast.dump(last) == ast.dump(most)
            return last if asked and same and _is_name(whole, tokens) else None
    return None


def _is_whole(node: ast.expr) -> bool:
    """`:`"""
    return isinstance(node, ast.Slice) and (node.lower, node.upper, node.step) == (None,) * 3
