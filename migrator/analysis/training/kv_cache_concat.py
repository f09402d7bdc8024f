"""Caches of keys and values that a module concatenates with new tokens: those of one known form.

    if self.keys is None:
        self.keys, self.values = k, v
    else:
        self.keys = torch.cat([self.keys, k], dim=1)
        self.values = torch.cat([self.values, v], dim=1)
    scores = q @ self.keys.mT
    hidden = self.mask[self.position : self.position + n, : scores.shape[-1]]
    self.position += n
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)

A table that is a causal mask limits the number of tokens, a counter gives the position of new ones.
Everything read from a cache goes to one softmax, which the table masks, so the cache can have the
table's length from the beginning. For a new text, only the counter has to be reset.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.cached_scores import CachedScores
from migrator.analysis.training.causal_masks import causal_table
from migrator.analysis.training.find_optimizer_steps import stops_gradients
from migrator.analysis.training.score_forms import assigned
from migrator.analysis.training.token_counters import Counter, token_counters
from migrator.analysis.training.token_positions import keys

_JOINS = ("torch.cat", "torch.concat", "torch.concatenate")


@dataclass(frozen=True)
class Grown:
    """`self.name`, which starts as `new`, and is concatenated with it later."""

    name: str
    new: str
    joined: ast.Assign


@dataclass(frozen=True)
class GrownCaches:
    """The caches of one method."""

    function: ast.FunctionDef
    choice: ast.If  # if self.keys is None
    caches: list[Grown]
    dim: int
    counter: Counter
    table: str  # the mask
    hidden: ast.Subscript  # its rows for the new tokens
    emptied: list[ast.Assign]  # self.keys = None, where the counter is reset


@once_in
def grown_caches(names: Names, tree: ast.Module) -> list[GrownCaches]:
    """The known caches of a file."""
    if not any(_is_join(names, call) for call in names.all(ast.Call)):
        return []
    if not stops_gradients(names):
        return []  # a cache that stays would keep the graphs of all texts
    return [
        found
        for counter in token_counters(names, tree)
        for function in counter.owner.body
        if isinstance(function, ast.FunctionDef)
        for choice in _choices(function)
        if (found := _read(names, counter, function, choice)) is not None
    ]


def _is_join(names: Names, call: ast.Call) -> bool:
    return names.qualified(call.func) in _JOINS


def _choices(function: ast.FunctionDef) -> Iterator[ast.If]:
    """`if self.keys is None:`, in the function or under a flag that enables the cache."""
    for statement in function.body:
        inner = statement.body if isinstance(statement, ast.If) else []
        for node in (statement, *inner):
            match node:
                case ast.If(ast.Compare(ast.Attribute(), [ast.Is()], [ast.Constant(None)])):
                    yield node


def _read(
    names: Names, counter: Counter, function: ast.FunctionDef, choice: ast.If
) -> GrownCaches | None:
    first = dict(_assigned(choice.body))
    joined = [_joined(names, statement) for statement in choice.orelse]
    caches = [cache for cache, _ in (found for found in joined if found is not None)]
    dims = {dim for _, dim in (found for found in joined if found is not None)}
    if len(caches) != len(choice.orelse) or len(first) != len(caches) or len(dims) != 1:
        return None
    made = {f"self.{cache.name}": cache.new for cache in caches}
    assert isinstance(choice.test, ast.Compare)
    if {k: dotted(v) for k, v in first.items()} != made or dotted(choice.test.left) not in made:
        return None
    if any(not _is_only_here(names, counter.owner, function, c.name, choice) for c in caches):
        return None
    emptied = _emptied(names, counter, {*made})
    if emptied is None:
        return None
    scores = CachedScores(names, function, {*made}, choice.end_lineno or choice.lineno)
    (dim,) = dims
    hidden = _hidden(names, counter, function, scores, choice)
    if hidden is None or not scores.are_hidden(hidden, dim):
        return None
    table = dotted(_table(hidden)) or ""
    made_of = causal_table(names, counter.owner, table)
    if made_of is None or made_of.shows:
        return None
    return GrownCaches(function, choice, caches, dim, counter, table, hidden, emptied)


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The targets and values of plain assignments; for anything else a name that nothing has."""
    for statement in body:
        found = assigned(statement)
        yield from ((ast.unparse(target), value) for target, value in found)
        if not found:
            yield "", ast.Constant(None)


def _joined(names: Names, statement: ast.stmt) -> tuple[Grown, int] | None:
    """`self.keys = torch.cat([self.keys, k], dim=1)`"""
    match statement:
        case ast.Assign(
            [ast.Attribute(ast.Name("self"), name)],
            ast.Call(
                _, [ast.List([old, ast.Name(new)]) | ast.Tuple([old, ast.Name(new)]), *_]
            ) as call,
        ) if _is_join(names, call) and dotted(old) == f"self.{name}":
            dim = argument(call, 1, "dim", "axis")
            if dim is not None and len(call.args) + len(call.keywords) == 2:
                along = ast.unparse(dim)
                if along in ("1", "2", "-2"):
                    return Grown(name, new, statement), int(along)
    return None


def _is_only_here(
    names: Names, owner: ast.ClassDef, function: ast.FunctionDef, name: str, choice: ast.If
) -> bool:
    """Whether only this method reads the cache, and nothing else assigns more than None to it."""
    begins = False
    for node in ast.walk(names.tree):
        match node:
            case ast.Attribute(value, attr) if attr == name:
                own = dotted(value) == "self" and names.enclosing_class(node) is owner
                if names.enclosing_class(node) is not owner and dotted(value) == "self":
                    continue  # of another class
                if not own or not (names.function(node) is function or _is_none(names, node)):
                    return False
                begins |= getattr(names.function(node), "name", "") == "__init__"
            case ast.Call(
                ast.Attribute(ast.Name("self"), "register_buffer"),
                [ast.Constant(value), ast.Constant(None), *_],
            ) if value == name and names.enclosing_class(node) is owner:
                begins = True
    stores = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr == name]
    stores = [n for n in stores if isinstance(n.ctx, ast.Store) and not _is_none(names, n)]
    within = {*ast.walk(choice)}
    return begins and all(node in within for node in stores)


def _is_none(names: Names, node: ast.Attribute) -> bool:
    """`self.keys = None`, `self.keys, self.values = None, None`, `self.keys is None`"""
    statement = names.statement(node)
    if isinstance(node.ctx, ast.Store) and isinstance(statement, ast.Assign):
        given = dict(_assigned([statement])).get(ast.unparse(node))
        return isinstance(given, ast.Constant) and given.value is None
    match names.parents[node]:
        case ast.Compare(_, [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
            return True
    return False


def _emptied(names: Names, counter: Counter, caches: set[str]) -> list[ast.Assign] | None:
    """The statements that clear the caches, if each is next to one that resets the counter."""
    found: dict[ast.stmt, set[str]] = {}
    for node in ast.walk(counter.owner):
        if isinstance(node, ast.Assign) and getattr(names.function(node), "name", "") != "__init__":
            given = dict(_assigned([node]))
            empty = {k for k, v in given.items() if isinstance(v, ast.Constant) and v.value is None}
            if empty & caches:
                if {*given} - caches or len(empty) != len(given):
                    return None
                found[node] = empty
    resets = [names.block(reset) for reset in counter.resets]
    if not all(any(s in block for block in resets) for s in found):
        return None
    for block in resets:
        if {name for s in block for name in found.get(s, ())} != caches:
            return None
    return [node for node in found if isinstance(node, ast.Assign)]


# ---- the mask ------------------------------------------------------------------------------------


def _hidden(
    names: Names,
    counter: Counter,
    function: ast.FunctionDef,
    scores: CachedScores,
    choice: ast.If,
) -> ast.Subscript | None:
    """`hidden = self.mask[self.position : self.position + n, :length]`, if there is a cache."""
    found = [
        (n, at) for n, at in counter.places.slices if names.function(n) is function and at == 0
    ]
    found = [(n, at) for n, at in found if (dotted(_table(n)) or "").startswith("self.")]
    if len(found) != 1:
        return None
    node = found[0][0]
    statement = names.statement(node)
    if not isinstance(statement, ast.Assign) or not scores.is_told_alike(statement, choice):
        return None
    (rows, *columns) = keys(node)
    if not isinstance(rows, ast.Slice) or rows.lower is None or rows.upper is None:
        return None
    if len(columns) != 1 or not scores.is_up_to_length(columns[0]):
        return None
    count = counter.places.count(rows.lower, rows.upper)
    block = names.block(statement)
    later = block[block.index(statement) + 1 :]
    grows = [grown for grown in counter.grows if names.function(grown) is function]
    if len(grows) != 1 or grows[0] not in later or count is None:
        return None
    same = ast.dump(grows[0].value) == ast.dump(count)
    return node if same and scores.is_one_value(count) else None


def _table(node: ast.Subscript) -> ast.expr:
    """The `self.mask` of `self.mask.bool()[…]`."""
    match node.value:
        case ast.Call(ast.Attribute(table, "bool"), [], []):
            return table
    return node.value
