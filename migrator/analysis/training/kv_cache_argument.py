"""Caches of keys and values that attention is given and returns: those of a few known forms.

    def forward(self, x, past=None):
        if past is not None:
            k = torch.cat((past[0], k), dim=-2)
            v = torch.cat((past[1], v), dim=-2)
        present = (k, v)
        scores = q @ k.mT
        scores = scores.masked_fill(self.mask[:, :, m - n : m, :m] == 0, -torch.inf)
        return scores.softmax(-1) @ v, present

Everything read from the keys and values goes to one softmax, which such a table masks, or to
`scaled_dot_product_attention`, which is causal only without a cache. So later places can be hidden
there, and the cache can have the full length from the first call on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.causal_masks import causal_table
from migrator.analysis.training.kv_cache_attention import GivenAttention, Join, Shown
from migrator.analysis.training.kv_cache_lengths import CacheLength, cache_lengths, most_positions
from migrator.analysis.training.score_forms import assigned, stores_of
from migrator.analysis.training.token_counters import MODULE

JOINS = ("torch.cat", "torch.concat", "torch.concatenate")


@dataclass(frozen=True)
class GivenCache:
    """A method that is given a cache, and returns a longer one."""

    function: ast.FunctionDef
    given: str
    choice: ast.If  # if past is not None
    taken: list[ast.Name]  # where parts are taken from it, if that changes
    joins: tuple[Join, Join]
    returned: ast.expr  # (k, v)
    elements: list[ast.expr]
    shown: list[Shown]
    limit: str  # how many tokens there can be
    begin: ast.stmt | None  # behind it, `limit` has to be assigned to an attribute
    lengths: list[CacheLength]

    @property
    def counts(self) -> int:
        """Which part of the new cache counts tokens: the one after (k, v), or after their stack."""
        return 1 if isinstance(self.returned, ast.Call) else 2


@once_in
def given_caches(names: Names, tree: ast.Module) -> list[GivenCache]:
    """The known cache of a file; none if there are several, or anything else reads one."""
    if not any(names.qualified(call.func) in JOINS for call in names.all(ast.Call)):
        return []
    found = [
        made
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        if any(names.qualified(base) in MODULE for base in owner.bases)
        for function in owner.body
        if isinstance(function, ast.FunctionDef)
        for choice, given in _choices(function)
        if (made := _CacheReader(names, owner, function, choice, given).read()) is not None
    ]
    return found if len(found) == 1 else []


def _choices(function: ast.FunctionDef) -> Iterator[tuple[ast.If, str]]:
    """`if past is not None:`, for a parameter that is None by default"""
    arguments = function.args.args
    defaults = arguments[len(arguments) - len(function.args.defaults) :]
    optional = {a.arg for a, value in zip(defaults, function.args.defaults, strict=True)
                if isinstance(value, ast.Constant) and value.value is None}  # fmt: skip
    for statement in function.body:
        match statement:
            case ast.If(ast.Compare(ast.Name(given), [ast.IsNot()], [ast.Constant(None)]), _, []):
                if given in optional:
                    yield statement, given


class _CacheReader:
    def __init__(
        self,
        names: Names,
        owner: ast.ClassDef,
        function: ast.FunctionDef,
        choice: ast.If,
        given: str,
    ) -> None:
        self._names, self._owner, self._function = names, owner, function
        self._choice, self._given = choice, given
        self._end = choice.end_lineno or choice.lineno
        self._unpacked: ast.Name | None = None

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        """The nodes of the function itself, in order."""
        names = self._names
        return [node for node in names.order if names.function(node) is self._function]

    def read(self) -> GivenCache | None:
        joins = self._joins()
        if joins is None or stores_of(self._given, self._nodes):
            return None
        returned = self._returned(joins)
        if returned is None:
            return None
        whole, elements = returned
        attention = GivenAttention(
            self._names, self._owner, self._function, self._choice, self._given
        )
        shown = attention.ways(joins, whole)
        if not shown:
            return None
        lengths = cache_lengths(
            self._names, self._given, joins[0].kept, self._nodes_of_cache(whole)
        )
        limit, begin = self._limit(shown, lengths or [])
        if not lengths or not limit:
            return None
        taken = self._taken(whole)
        return GivenCache(self._function, self._given, self._choice, taken, joins, whole, elements,
                          shown, limit, begin, lengths)  # fmt: skip

    def _taken(self, returned: ast.expr) -> list[ast.Name]:
        """The `past` of `keys, values = past`; with a stack, also those of `past[0]`."""
        below = [n for s in self._choice.body for n in ast.walk(s)
                 if isinstance(n, ast.Name) and n.id == self._given]  # fmt: skip
        return (
            below if isinstance(returned, ast.Call) else [n for n in below if n is self._unpacked]
        )

    def _nodes_of_cache(self, returned: ast.expr) -> set[ast.AST]:
        """Where the cache is taken apart and put together."""
        return {*ast.walk(self._choice), *ast.walk(returned)}

    # ---- longer keys and values ------------------------------------------------------------------

    def _joins(self) -> tuple[Join, Join] | None:
        """The statements below `if past is not None:`, all of which have to be known."""
        held: dict[str, tuple[int, bool]] = {}
        joins: dict[int, Join] = {}
        for statement in self._choice.body:
            match statement:
                case ast.Assign([ast.Tuple([ast.Name(one), ast.Name(two)])], ast.Name(given) as x):
                    if given != self._given or self._unpacked is not None:
                        return None
                    self._unpacked = x
                    held |= {one: (0, False), two: (1, False)}
                    continue
                case ast.Assert(test) | ast.If(test, [ast.Raise()], []):
                    if any(isinstance(n, ast.Name) and n.id in {self._given, *held}
                           for n in ast.walk(test)):  # fmt: skip
                        return None
                    continue
            for target, value in assigned(statement):
                part = self._part(value, held)
                join = self._join(target, value, held)
                if part is not None and isinstance(target, ast.Name):
                    held[target.id] = part
                elif join is not None and join[0] not in joins:
                    joins[join[0]] = join[1]
                else:
                    return None
            if not assigned(statement):
                return None
        if {*joins} != {0, 1} or joins[1].turned or joins[0].kept != joins[1].kept:
            return None
        both = (joins[0], joins[1])
        known = all(join.dim == ("-1" if join.turned else join.kept) for join in both)
        return both if known and self._has_known_dimensions(both) else None

    def _part(self, node: ast.expr, held: dict[str, tuple[int, bool]]) -> tuple[int, bool] | None:
        """`past[0]`, `past[0].transpose(-2, -1)`, or a name for it"""
        match node:
            case ast.Name(name):
                return held.get(name)
            case ast.Subscript(ast.Name(given), ast.Constant(0 | 1 as place)) if (
                given == self._given
            ):
                return (1 if place else 0), False
        turned = _turned(node)
        part = self._part(turned, held) if turned is not None else None
        return (part[0], not part[1]) if part is not None else None

    def _join(
        self, target: ast.expr, value: ast.expr, held: dict[str, tuple[int, bool]]
    ) -> tuple[int, Join] | None:
        match value:
            case ast.Call(
                func, [ast.List([old, ast.Name(new)]) | ast.Tuple([old, ast.Name(new)]), *_]
            ) if self._names.qualified(func) in JOINS:
                part, dim = self._part(old, held), argument(value, 1, "dim", "axis")
                if part is None or dim is None or len(value.args) + len(value.keywords) != 2:
                    return None
                same = isinstance(target, ast.Name) and target.id == new
                return (part[0], Join(value, old, new, ast.unparse(dim), part[1])) if same else None
        return None

    def _has_known_dimensions(self, joins: tuple[Join, Join]) -> bool:
        if joins[0].kept == "-2":
            return True
        four = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
                   and n.func.attr in ("view", "reshape") and len(n.args) == 4
                   for n in self._nodes)  # fmt: skip
        return joins[0].kept in ("1", "2") and four

    def _returned(self, joins: tuple[Join, Join]) -> tuple[ast.expr, list[ast.expr]] | None:
        """The `(k, v)` or `torch.stack((k, v))` that is the new cache."""
        found: list[tuple[ast.expr, list[ast.expr]]] = []
        for node in self._nodes:
            match node:
                case ast.Tuple([one, two], ast.Load()) if node.lineno > self._end:
                    turned = _turned(one) if joins[0].turned else one
                    if turned is None or [dotted(turned), dotted(two)] != [j.new for j in joins]:
                        continue
                    above = self._names.parents[node]
                    match above:
                        case ast.Assign([ast.Tuple()]):
                            continue  # other names for keys and values
                        case ast.Call(func, [_], []) if (
                            self._names.qualified(func) == "torch.stack"
                        ):
                            found.append((above, [one, two]))
                        case _:
                            found.append((node, [one, two]))
        if len(found) != 1:
            return None
        whole, elements = found[0]
        between = (n for join in joins for n in stores_of(join.new, self._nodes))
        changed = any(self._end < n.lineno < whole.lineno for n in between)
        return None if changed or not self._is_only_returned(whole) else (whole, elements)

    def _is_only_returned(self, node: ast.expr) -> bool:
        above = self._names.parents[node]
        match above:
            case ast.IfExp(_, body, orelse) if node in (body, orelse):
                other = orelse if node is body else body
                none = isinstance(other, ast.Constant) and other.value is None
                return none and self._is_only_returned(above)
            case ast.Tuple() | ast.Return():
                return isinstance(self._names.statement(node), ast.Return)
            case ast.Assign([ast.Name(name)]):
                uses = [n for n in self._nodes if isinstance(n, ast.Name) and n.id == name
                        and isinstance(n.ctx, ast.Load)]  # fmt: skip
                return all(isinstance(self._names.parents[n], ast.Tuple | ast.Return)
                           and isinstance(self._names.statement(n), ast.Return)
                           for n in uses)  # fmt: skip
        return False

    # ---- the limit -------------------------------------------------------------------------------

    def _limit(self, shown: list[Shown], lengths: list[CacheLength]) -> tuple[str, ast.stmt | None]:
        """How many tokens a table is for: the mask, or the embeddings of positions."""
        begins = [
            m for m in self._owner.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"
        ]
        if not begins:
            return "", None
        (function, *_) = begins
        for way in shown:
            if way.rows is not None:
                name = dotted(way.rows.value) or ""
                table = causal_table(self._names, self._owner, name)
                if table is not None and self._names.statement(table.call) in function.body:
                    return f"{name}.shape[-1]", None
        given = {a.arg for a in function.args.args[1:]}
        limit = most_positions(self._names, lengths)
        begun = [s for s in function.body if "__init__(" in ast.unparse(s)]
        if limit is None or not begun or _root(limit) not in given:
            return "", None
        return ast.unparse(limit), begun[0]


def _root(node: ast.expr) -> str:
    """The `config` of `config.length` or `config["length"]`"""
    while isinstance(node, ast.Attribute) or (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    ):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _turned(node: ast.expr) -> ast.expr | None:
    """The `x` of `x.transpose(-2, -1)`"""
    match node:
        case ast.Call(ast.Attribute(value, "transpose"), [one, two], []):
            return value if {ast.unparse(one), ast.unparse(two)} == {"-1", "-2"} else None
        case ast.Attribute(value, "mT"):
            return value
    return None
