"""Attention scores computed from a cache of keys: whether they all go to one masked softmax."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.score_forms import (
    Mask,
    assigned,
    lowered,
    scales,
    size_of,
    stored,
    unscaled,
)

_MINUS_INFINITY = ("-torch.inf", "float('-inf')", "-float('inf')", "-math.inf", "-np.inf")
_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")
_PRODUCTS = ("torch.matmul", "torch.bmm")
_MOVES = {"transpose": 2, "permute": 4, "repeat_interleave": 2, "contiguous": 0, "float": 0}


_SDPA = "torch.nn.functional.scaled_dot_product_attention"


@dataclass
class Reads:
    """What is computed from caches."""

    products: list[ast.expr] = field(default_factory=list)  # of scores, and of weights
    fused: list[ast.Call] = field(default_factory=list)  # scaled_dot_product_attention
    lengths: set[str] = field(default_factory=set)  # names for the number of keys


class CachedScores:
    """What a function computes from its caches, which it reads from a statement on."""

    def __init__(
        self,
        names: Names,
        function: ast.FunctionDef,
        caches: set[str],
        after: int,
        without: Collection[ast.AST] = (),
    ) -> None:
        self._names, self._function, self._caches = names, function, caches
        self._nodes = [n for n in names.order if names.function(n) is function]
        self._behind = [
            n for n in self._nodes if getattr(n, "lineno", 0) > after and n not in without
        ]
        self._held = {*self._derived()}  # names that may be a cache, or a view of one

    # ---- names -----------------------------------------------------------------------------------

    def _derived(self) -> Iterator[str]:
        found: set[str] = set()
        while True:
            new = {
                name.id
                for node in self._behind
                if isinstance(node, ast.Assign)
                for name, value in assigned(node)
                if isinstance(name, ast.Name) and self._is_view(value, found)
            } - found
            if not new:
                return
            found |= new
            yield from new

    def _is_view(self, node: ast.expr, held: set[str]) -> bool:
        """`self.keys`, `keys.transpose(1, 2)`"""
        match node:
            case ast.Name(name):
                return name in held or name in self._caches
            case ast.Attribute(value, "mT"):
                return self._is_view(value, held)
            case ast.Attribute():
                return dotted(node) in self._caches
            case ast.Call(ast.Attribute(value, method), given) if method in _MOVES:
                return len(given) <= _MOVES[method] and self._is_view(value, held)
        return False

    def is_one_value(self, node: ast.expr) -> bool:
        """Whether a name is assigned only once."""
        return isinstance(node, ast.Name) and len(self._stores(node.id)) == 1

    def _stores(self, name: str) -> list[ast.Name]:
        return [n for n in self._named(name) if not isinstance(n.ctx, ast.Load)]

    def loads(self, *names: str) -> list[ast.Name]:
        return [n for name in names for n in self._named(name) if isinstance(n.ctx, ast.Load)]

    def _named(self, name: str) -> list[ast.Name]:
        return [n for n in self._nodes if isinstance(n, ast.Name) and n.id == name]

    def is_told_alike(self, statement: ast.stmt, choice: ast.If) -> bool:
        """Whether both have the same condition: always, or if `use_cache`, `self.use_cache`."""
        blocks = [self._names.parents[node] for node in (statement, choice)]
        if blocks[0] is blocks[1] is self._function:
            return True
        told = {""}
        for block, node in zip(blocks, (statement, choice), strict=True):
            if not isinstance(block, ast.If) or node not in block.body:
                return False
            if block not in self._function.body:
                return False
            told.add(dotted(block.test) or ast.unparse(block))
        stored = {dotted(n) for n in self._nodes if isinstance(getattr(n, "ctx", None), ast.Store)}
        return len(told) == 2 and told.isdisjoint(stored)

    # ---- lengths ---------------------------------------------------------------------------------

    def is_up_to_length(self, key: ast.expr) -> bool:
        """`:length`, if that is the number of keys."""
        match key:
            case ast.Slice(None, ast.Name(name), None):
                made = [s for n in self._stores(name) if (s := self._names.statement(n))]
                return len(made) == 1 and self._is_length(getattr(made[0], "value", None))
            case ast.Slice(None, ast.expr() as upper, None):
                return self._is_length(upper)
        return False

    def _is_length(self, node: ast.expr | None) -> bool:
        """`keys.shape[-2]`, or the size of anything with a column for each score."""
        match node:
            case ast.Subscript(ast.Attribute(value, "shape"), key):
                return self._is_view(value, self._held) and not isinstance(key, ast.Slice)
            case ast.Call(ast.Attribute(value, "size"), [_], []):
                return self._is_view(value, self._held)
        return False

    # ---- from the product to the weights ---------------------------------------------------------

    def are_hidden(self, hidden: ast.Subscript, dim: int) -> bool:
        """Whether everything read from the caches is weighted, and hidden by this mask."""
        found = self.reads(dim)
        if found is None or found.fused:
            return False
        loads = self.loads(*found.lengths)
        match self._names.statement(hidden):
            case ast.Assign([ast.Name(mask)], value) if value is hidden:
                told = Mask(hidden, mask)
                return all(map(self._is_up_to, loads)) and self.are_weighed(found.products, told)
        return False

    def reads(self, dim: int) -> Reads | None:
        """What is computed from the caches; None if that is more than attention."""
        found = Reads()
        for node in self._behind:
            if not self._is_read(node):
                continue
            assert isinstance(node, ast.expr)
            whole, above = self._whole(node)
            match above:
                case ast.Assign() | ast.Tuple() if self._gets_name(whole):
                    continue
                case ast.BinOp(_, ast.MatMult(), right) if right is whole:
                    found.products.append(above)
                case ast.Call(func, [_, right]) if right is whole:
                    if self._names.qualified(func) not in _PRODUCTS:
                        return None
                    found.products.append(above)
                case ast.Call(func, [_, key, value]) if whole in (key, value):
                    if self._names.qualified(func) != _SDPA:
                        return None
                    found.fused.append(above)
                case ast.Attribute(attr="shape" | "size"):
                    if not self._is_size(above, dim, found.lengths):
                        return None
                case ast.Compare(_, [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
                    continue
                case _:
                    return None
        found.products.sort(key=lambda product: product.lineno)
        return found

    def _gets_name(self, node: ast.expr) -> bool:
        """`keys, values = k, v`, but not `self.last = k`, which others may read."""
        pairs = assigned(self._names.statement(node))
        return any(isinstance(name, ast.Name) and value is node for name, value in pairs)

    def _is_read(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name, ast.Load()):
                return name in self._held or name in self._caches
            case ast.Attribute(ctx=ast.Load()):
                return dotted(node) in self._caches
        return False

    def _whole(self, node: ast.expr) -> tuple[ast.expr, ast.AST]:
        """The view that an expression is part of, and what is derived from it."""
        above = self._names.parents[node]
        while True:
            call = self._names.parents[above]
            if isinstance(above, ast.Attribute) and above.attr == "mT":
                node, above = above, call
            elif isinstance(call, ast.Call) and self._is_view(call, self._held):
                node, above = call, self._names.parents[call]
            else:
                return node, above

    def _is_size(self, node: ast.AST, dim: int, lengths: set[str]) -> bool:
        """`keys.shape[-1]`, which doesn't change, or `length = keys.shape[-2]`."""
        read = self._names.parents[node]
        if not isinstance(read, ast.Subscript | ast.Call):
            return False
        key = read.slice if isinstance(read, ast.Subscript) else argument(read, 0, "dim")
        if key is None:
            return False
        if ast.unparse(key) == "-1":
            size = dim < 0 or self._has_four_dimensions()
            return size and isinstance(node, ast.Attribute) and self._ends_in_size(node.value, ())
        match self._names.parents[read]:
            case ast.Assign([ast.Name(name)]) if len(self._stores(name)) == 1:
                lengths.add(name)
                return True
        return self._is_up_to(read)

    def _ends_in_size(self, node: ast.expr, seen: tuple[str, ...]) -> bool:
        """Whether the last dimension of a view is not that of the tokens."""
        match node:
            case ast.Call(ast.Attribute(value, method), given):
                last = [ast.unparse(key) for key in given]
                four = self._has_four_dimensions()
                stays = {
                    "transpose": four and not {"-1", "3"} & {*last},
                    "permute": four and last[-1:] in (["3"], ["-1"]),
                }.get(method, True)
                return stays and self._ends_in_size(value, seen)
            case ast.Name(name) if name not in seen:
                values = [value for store in self._stores(name)
                          for target, value in assigned(self._names.statement(store))
                          if target is store]  # fmt: skip
                held = (v for v in values if self._is_view(v, self._held))
                return all(self._ends_in_size(value, (*seen, name)) for value in held)
        return not (isinstance(node, ast.Attribute) and node.attr == "mT")

    def _has_four_dimensions(self) -> bool:
        """Whether new keys are known to have a shape like (batch, tokens, heads, size)."""
        return any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("view", "reshape")
            and len(node.args) == 4
            for node in self._nodes
        )

    def _is_up_to(self, node: ast.AST) -> bool:
        """Whether it is the end of a slice of columns."""
        key = self._names.parents[node]
        return isinstance(key, ast.Slice) and key.upper is node and key.lower is None

    def are_weighed(
        self, products: list[ast.expr], mask: Mask, body: list[ast.stmt] | None = None
    ) -> bool:
        """Whether the scores are masked and become the weights of the other product."""
        statement = self._names.statement(products[0]) if len(products) == 2 else None
        match statement:
            case ast.Assign([ast.Name(scores)], value) if unscaled(value) is products[0]:
                body = self._function.body if body is None else body
                return statement in body and self._follows(
                    body[body.index(statement) + 1 :], scores, mask, products[1]
                )
        return False

    def _follows(self, body: list[ast.stmt], scores: str, mask: Mask, product: ast.expr) -> bool:
        """Scores are scaled and masked, then become weights: nothing else is done with either."""
        state, weights = "scores", ""
        for statement in body:
            names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
            if state == "scores" and scores in names:
                if self._masks(statement, scores, mask):
                    state = "masked"
                elif not scales(statement, scores) and not self._sizes(statement, scores, mask):
                    if mask.name not in stored(statement):
                        return False
            elif state == "masked" and scores in names:
                weights = self._weighs(statement, scores)
                if not weights:
                    return self._ends(statement, product, scores)
                state = "weights"
            elif state == "weights" and names & {weights, scores}:
                if not self._drops(statement, weights):
                    return self._ends(statement, product, scores, weights)
        return False

    def _ends(self, statement: ast.stmt, product: ast.expr, *names: str) -> bool:
        """`weights @ values`, or `scores.softmax(-1) @ values`, and nothing else of either name"""
        match product:
            case ast.BinOp(left) | ast.Call(_, [left, *_]):
                pass
            case _:
                return False
        used = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in names]
        given = self._weighed(left) if len(names) == 1 else left
        return used == [given] and not self._is_read_behind(statement, *names)

    def _sizes(self, statement: ast.stmt, scores: str, mask: Mask) -> bool:
        """`rows, columns = scores.size(-2), scores.size(-1)`, which only the mask needs."""
        found, within = assigned(statement), {*ast.walk(mask.rows)}
        return bool(found) and all(
            isinstance(name, ast.Name)
            and size_of(value)[0] == scores
            and within.issuperset(self.loads(name.id))
            for name, value in found
        )

    def _is_read_behind(self, statement: ast.stmt, *names: str) -> bool:
        end = statement.end_lineno or statement.lineno
        return any(
            isinstance(n, ast.Name) and n.id in names and n.lineno > end for n in self._behind
        )

    def _masks(self, statement: ast.stmt, scores: str, mask: Mask) -> bool:
        """`scores.masked_fill_(mask, -torch.inf)`, `scores = scores * mask - 1e10 * (1 - mask)`"""
        match statement:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "masked_fill_"), given)):
                pass
            case ast.Assign(
                [ast.Name(kept)], ast.Call(ast.Attribute(ast.Name(name), "masked_fill"), given)
            ) if kept == scores:
                pass
            case ast.Assign([ast.Name(kept)], value) if kept == scores and mask.shows:
                return lowered(value, scores, mask.name)
            case _:
                return False
        right = name == scores and len(given) == 2 and ast.unparse(given[0]) in mask.texts
        return right and ast.unparse(given[1]) in _MINUS_INFINITY

    def _weighs(self, statement: ast.stmt, scores: str) -> str:
        """The `weights` of `weights = torch.softmax(scores / size, dim=-1)`."""
        match statement:
            case ast.Assign([ast.Name(weights)], value):
                given = self._weighed(value)
                return weights if isinstance(given, ast.Name) and given.id == scores else ""
        return ""

    def _weighed(self, call: ast.expr) -> ast.expr | None:
        """The `scores` of `torch.softmax(scores / size, dim=-1)`."""
        if not isinstance(call, ast.Call):
            return None
        is_function = self._names.qualified(call.func) in _SOFTMAX
        dim = argument(call, 1 if is_function else 0, "dim")
        given = call.args[0] if is_function and call.args else None
        if isinstance(call.func, ast.Attribute) and not is_function:
            given = call.func.value if call.func.attr == "softmax" else None
        if isinstance(call.func, ast.Call) and len(call.args) == 1:
            made = call.func
            is_layer = self._names.qualified(made.func) == "torch.nn.Softmax"
            dim, given = argument(made, 0, "dim"), call.args[0] if is_layer else None
        right = given is not None and dim is not None and ast.unparse(dim) == "-1"
        return unscaled(given) if given is not None and right else None

    def _drops(self, statement: ast.stmt, weights: str) -> bool:
        """`weights = self.dropout(weights)`"""
        match statement:
            case ast.Assign(
                [ast.Name(name)], ast.Call(ast.Attribute(ast.Name("self"), _), [ast.Name(given)])
            ):
                return name == given == weights
        return False
