"""Attention over keys and values that were joined with a cache: where it learns what to hide."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.cached_scores import CachedScores
from migrator.analysis.training.causal_masks import causal_table
from migrator.analysis.training.score_forms import Mask, assigned, size_of, stores_of
from migrator.analysis.training.token_positions import keys

_OF_SDPA = {"dropout_p", "is_causal", "scale", "enable_gqa"}


@dataclass(frozen=True)
class Join:
    """`new = torch.cat((old, new), dim)`"""

    call: ast.Call
    old: ast.expr
    new: str
    dim: str
    turned: bool  # the cache has keys as (…, tokens, size), `old` as (…, size, tokens)

    @property
    def kept(self) -> str:
        """The dimension of the tokens in the cache."""
        return "-2" if self.turned else self.dim


@dataclass(frozen=True)
class Shown:
    """Where attention learns which places of the cache hold tokens."""

    fused: ast.Call | None = None  # scaled_dot_product_attention
    rows: ast.Subscript | None = None  # of the table
    inner: ast.FunctionDef | None = None  # a method that computes the scores
    call: ast.Call | None = None  # of that method


class GivenAttention:
    """Attention behind `choice`, which joins keys and values with those of the cache `given`."""

    def __init__(
        self,
        names: Names,
        owner: ast.ClassDef,
        function: ast.FunctionDef,
        choice: ast.If,
        given: str,
    ) -> None:
        self._names, self._owner, self._function = names, owner, function
        self._given, self._end = given, choice.end_lineno or choice.lineno
        self._nodes = [n for n in names.order if names.function(n) is function]

    def ways(self, joins: tuple[Join, Join], returned: ast.expr) -> list[Shown]:
        """Attention in one way or, by `if self.flash:`, in two; empty if it is not known."""
        held = {join.new for join in joins}
        without = {*ast.walk(returned)}
        for statement in self._function.body:
            if isinstance(statement, ast.If) and statement.lineno > self._end and statement.orelse:
                ways = [statement.body, statement.orelse]
                inside = [{n for s in way for n in ast.walk(s)} for way in ways]
                if all(any(isinstance(n, ast.Name) and n.id in held for n in way)
                       for way in inside):  # fmt: skip
                    told = {n.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)}
                    both = [
                        self._way(joins, without | inside[1 - number], way)
                        for number, way in enumerate(ways)
                    ]
                    if told & {self._given, *held}:
                        return []
                    return [way for way in both if way is not None] if all(both) else []
        way = self._way(joins, without, self._function.body)
        return [way] if way is not None else []

    def _way(
        self, joins: tuple[Join, Join], without: set[ast.AST], body: list[ast.stmt]
    ) -> Shown | None:
        held = {join.new for join in joins}
        inner = self._inner(joins, without)
        if inner is not None:
            method, call, given = inner
            return self._masked(
                joins, method, given, 0, (), method.body, Shown(inner=method, call=call)
            )
        scores = CachedScores(self._names, self._function, held, self._end, without)
        found = scores.reads(-2 if joins[0].kept == "-2" else 1)
        if found is None:
            return None
        if len(found.fused) == 2 and not found.products:
            call = found.fused[0]
            right = call is found.fused[1] and self._is_known_call(call)
            right &= without.issuperset(scores.loads(*found.lengths))
            return Shown(fused=call) if right else None
        return self._masked(joins, self._function, held, self._end, without, body, Shown())

    def _inner(
        self, joins: tuple[Join, Join], without: set[ast.AST]
    ) -> tuple[ast.FunctionDef, ast.Call, set[str]] | None:
        """`self.attend(q, k, v)`, a method that only this one calls."""
        uses = [n for n in self._nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
                and n.id in {j.new for j in joins} and n.lineno > self._end
                and n not in without]  # fmt: skip
        calls = {self._names.parents[n] for n in uses}
        match [*calls]:
            case [ast.Call(ast.Attribute(ast.Name("self"), name), [*given], []) as call]:
                pass
            case _:
                return None
        named = [n for n in self._names.order if isinstance(n, ast.Attribute) and n.attr == name]
        methods = [m for m in self._owner.body if isinstance(m, ast.FunctionDef) and m.name == name]
        if len(named) != 1 or len(methods) != 1 or len(uses) != 2:
            return None
        (method,) = methods
        parameters = method.args.args[1:]
        plain = not (method.args.vararg or method.args.kwarg or method.args.kwonlyargs)
        if not plain or method.args.defaults or len(parameters) != len(given):
            return None
        if method.decorator_list:
            return None
        held = {p.arg for p, value in zip(parameters, given, strict=True) if value in uses}
        return method, call, held

    def _masked(
        self,
        joins: tuple[Join, Join],
        function: ast.FunctionDef,
        held: set[str],
        after: int,
        without: set[ast.AST] | tuple[()],
        body: list[ast.stmt],
        shown: Shown,
    ) -> Shown | None:
        """Scores that rows of a table mask."""
        scores = CachedScores(self._names, function, held, after, without)
        found = scores.reads(-2 if joins[0].kept == "-2" else 1)
        if found is None or found.fused or len(found.products) != 2:
            return None
        targets = [t for t, _ in assigned(self._names.statement(found.products[0]))]
        rows = [n for n in self._names.order if isinstance(n, ast.Subscript)
                and self._names.function(n) is function and n not in without
                and self._is_of_table(n)]  # fmt: skip
        if len(rows) != 1 or (joins[0].turned and self._reads_sizes(function, joins[0], shown)):
            return None
        table = _Rows(self._names, function, held, "".join(map(ast.unparse, targets)), rows[0])
        within = {*ast.walk(rows[0])}
        if not table.are_last() or not within.issuperset(scores.loads(*found.lengths)):
            return None
        statement = self._names.statement(rows[0])
        named = [t.id for t, value in assigned(statement)
                 if value is rows[0] and isinstance(t, ast.Name)]  # fmt: skip
        mask = Mask(rows[0], named[0] if named else "", shows=self._shows(rows[0]))
        if not scores.are_weighed(found.products, mask, body):
            return None
        return Shown(rows=rows[0], inner=shown.inner, call=shown.call)

    def _reads_sizes(self, function: ast.FunctionDef, join: Join, shown: Shown) -> bool:
        """Whether a size of turned keys is read: the last one is the number of tokens."""
        name = join.new
        if shown.call is not None and shown.inner is not None:
            place = [dotted(value) for value in shown.call.args].index(name)
            name = shown.inner.args.args[1 + place].arg
        return any(size_of(n)[0] == name for n in ast.walk(function))

    def _is_of_table(self, node: ast.Subscript) -> bool:
        name = dotted(node.value) or ""
        return name.startswith("self.") and causal_table(self._names, self._owner, name) is not None

    def _shows(self, rows: ast.Subscript) -> bool:
        table = causal_table(self._names, self._owner, dotted(rows.value) or "")
        return table is not None and table.shows

    def _is_known_call(self, call: ast.Call) -> bool:
        """Whether attention sees everything if it has a cache, and is causal if it has none."""
        causal = argument(call, None, "is_causal")
        others = {k.arg for k in call.keywords} - _OF_SDPA
        return len(call.args) == 3 and not others and causal is not None and self._is_first(causal)

    def _is_first(self, node: ast.expr) -> bool:
        """`past is None`, at least"""
        match node:
            case ast.Compare(ast.Name(given), [ast.Is()], [ast.Constant(None)]):
                return given == self._given
            case ast.BoolOp(ast.And(), values):
                return any(map(self._is_first, values))
            case ast.Name(name):
                return self._is_told(name)
        return False

    def _is_told(self, name: str) -> bool:
        """`is_causal = past is None`, or False and True in the branches of `past is not None`"""
        stores = [self._names.statement(n) for n in stores_of(name, self._nodes)]
        match stores:
            case [ast.Assign([ast.Name()], value)]:
                return self._is_first(value)
            case [ast.Assign([ast.Name()], ast.Constant(one)) as first, second]:
                above = self._names.parents[first]
                match above, second:
                    case (
                        ast.If(ast.Compare(ast.Name(given), [op], [ast.Constant(None)]), [a], [b]),
                        ast.Assign([ast.Name()], ast.Constant(two)),
                    ) if given == self._given and [a, b] == stores:
                        wanted = (True, False) if isinstance(op, ast.Is) else (False, True)
                        return isinstance(op, ast.Is | ast.IsNot) and (one, two) == wanted
        return False


class _Rows:
    """`table[:, :, m - n : m, :m]`: for n new tokens of m."""

    def __init__(
        self,
        names: Names,
        function: ast.FunctionDef,
        held: set[str],
        scores: str,
        node: ast.Subscript,
    ) -> None:
        self._names, self._function, self._held = names, function, held
        self._scores, self._node = scores, node

    def are_last(self) -> bool:
        *others, rows, columns = keys(self._node)
        if any(ast.unparse(key) != ":" for key in others):
            return False
        match rows, columns:
            case (
                ast.Slice(ast.BinOp(one, ast.Sub(), count), two, None),
                ast.Slice(None, three, None),
            ) if two is not None and three is not None:
                same = ast.dump(one) == ast.dump(two) == ast.dump(three)
                return same and self._are_keys(one) and self._are_queries(count)
        return False

    def _stores(self, name: str) -> list[ast.Name]:
        found = stores_of(name, self._names.order)
        return [n for n in found if isinstance(n.ctx, ast.Store)
                and self._names.function(n) is self._function]  # fmt: skip

    def _value(self, node: ast.expr) -> ast.expr:
        """What the only assignment to a name gives it."""
        if not isinstance(node, ast.Name):
            return node
        stores = self._stores(node.id)
        if len(stores) != 1:
            return node
        found = [v for t, v in assigned(self._names.statement(stores[0])) if t is stores[0]]
        return found[0] if found else node

    def _are_keys(self, node: ast.expr) -> bool:
        name, dim = size_of(self._value(node))
        return (name in self._held and dim == "-2") or (name, dim) == (self._scores, "-1")

    def _are_queries(self, node: ast.expr) -> bool:
        """The rows of the scores, or the T of `B, T, C = x.size()`"""
        if size_of(self._value(node)) == (self._scores, "-2"):
            return True
        if not isinstance(node, ast.Name):
            return False
        match [self._names.statement(n) for n in self._stores(node.id)]:
            case [ast.Assign([ast.Tuple([_, ast.Name(name), *_])], value)]:
                match value:
                    case ast.Call(ast.Attribute(_, "size"), [], []) | ast.Attribute(_, "shape"):
                        return name == node.id
        return False
