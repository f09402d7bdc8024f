"""Attention scores computed from a cache of keys: whether they all go to one masked softmax."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names, argument, dotted

_MINUS_INFINITY = ("-torch.inf", "float('-inf')", "-float('inf')", "-math.inf", "-np.inf")
_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")
_PRODUCTS = ("torch.matmul", "torch.bmm")
_MOVES = {"transpose": 2, "permute": 4, "repeat_interleave": 2, "contiguous": 0, "float": 0}


class CachedScores:
    """What a function computes from its caches, which it reads from a statement on."""

    def __init__(
        self, names: Names, function: ast.FunctionDef, caches: set[str], choice: ast.If
    ) -> None:
        self._names, self._function, self._caches = names, function, caches
        self._nodes = [n for n in names.order if names.function(n) is function]
        end = choice.end_lineno or choice.lineno
        self._behind = [n for n in self._nodes if getattr(n, "lineno", 0) > end]
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
                return name in held
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

    def _loads(self, name: str) -> list[ast.Name]:
        return [n for n in self._named(name) if isinstance(n.ctx, ast.Load)]

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
        lengths: set[str] = set()
        products: list[ast.expr] = []
        for node in self._behind:
            if not self._is_read(node):
                continue
            assert isinstance(node, ast.expr)
            whole, above = self._whole(node)
            match above:
                case ast.Assign() | ast.Tuple():
                    continue  # another name
                case ast.BinOp(_, ast.MatMult(), right) if right is whole:
                    products.append(above)
                case ast.Call(func, [_, right]) if right is whole:
                    if self._names.qualified(func) not in _PRODUCTS:
                        return False
                    products.append(above)
                case ast.Attribute(attr="shape" | "size"):
                    if not self._is_size(above, dim, lengths):
                        return False
                case ast.Compare(_, [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
                    continue
                case _:
                    return False
        products.sort(key=lambda product: product.lineno)
        return len(products) == 2 and self._is_weighed(products, hidden, lengths)

    def _is_read(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name, ast.Load()):
                return name in self._held
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
            return dim < 0 or self._has_four_dimensions()
        match self._names.parents[read]:
            case ast.Assign([ast.Name(name)]) if len(self._stores(name)) == 1:
                lengths.add(name)
                return True
        return self._is_up_to(read)

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

    def _is_weighed(
        self, products: list[ast.expr], hidden: ast.Subscript, lengths: set[str]
    ) -> bool:
        loads = [node for name in lengths for node in self._loads(name)]
        if not all(map(self._is_up_to, loads)):
            return False
        statement = self._names.statement(products[0])
        match statement:
            case ast.Assign([ast.Name(scores)], value) if _unscaled(value) is products[0]:
                pass
            case _:
                return False
        masked = self._names.statement(hidden)
        match masked:
            case ast.Assign([ast.Name(mask)], value) if value is hidden:
                return self._follows(statement, scores, mask, products[1])
        return False

    def _follows(self, made: ast.stmt, scores: str, mask: str, product: ast.expr) -> bool:
        """Scores are scaled and masked, then become weights: nothing else is done with either."""
        body = self._function.body
        if made not in body:
            return False
        seen: set[ast.AST] = {made}
        state, weights = "scores", ""
        for statement in body[body.index(made) + 1 :]:
            names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
            if state == "scores" and scores in names:
                if self._masks(statement, scores, mask):
                    state = "masked"
                elif not _scales(statement, scores):
                    return False
                seen.add(statement)
            elif state == "masked" and scores in names:
                weights = self._weighs(statement, scores)
                if not weights:
                    return False
                state = "weights"
                seen.add(statement)
            elif state == "weights" and names & {weights, scores}:
                if self._drops(statement, weights):
                    continue
                left = product.left if isinstance(product, ast.BinOp) else product
                if isinstance(product, ast.Call):
                    left = product.args[0]
                used = [n for n in ast.walk(statement)
                        if isinstance(n, ast.Name) and n.id in (weights, scores)]  # fmt: skip
                return used == [left] and not self._is_read_behind(statement, weights, scores)
        return False

    def _is_read_behind(self, statement: ast.stmt, *names: str) -> bool:
        body = self._function.body
        later = body[body.index(statement) + 1 :]
        return any(isinstance(n, ast.Name) and n.id in names for s in later for n in ast.walk(s))

    def _masks(self, statement: ast.stmt, scores: str, mask: str) -> bool:
        """`scores.masked_fill_(mask, -torch.inf)`, `scores = scores.masked_fill(mask, …)`"""
        match statement:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "masked_fill_"), given)):
                pass
            case ast.Assign(
                [ast.Name(kept)], ast.Call(ast.Attribute(ast.Name(name), "masked_fill"), given)
            ) if kept == scores:
                pass
            case _:
                return False
        right = name == scores and len(given) == 2 and ast.unparse(given[0]) == mask
        return right and ast.unparse(given[1]) in _MINUS_INFINITY

    def _weighs(self, statement: ast.stmt, scores: str) -> str:
        """The `weights` of `weights = torch.softmax(scores / size, dim=-1)`."""
        match statement:
            case ast.Assign([ast.Name(weights)], ast.Call() as call):
                pass
            case _:
                return ""
        is_function = self._names.qualified(call.func) in _SOFTMAX
        given = call.args[0] if is_function and call.args else None
        if isinstance(call.func, ast.Attribute) and not is_function:
            given = call.func.value if call.func.attr == "softmax" else None
        dim = argument(call, 1 if is_function else 0, "dim")
        if given is None or dim is None or ast.unparse(dim) != "-1":
            return ""
        given = _unscaled(given)
        return weights if isinstance(given, ast.Name) and given.id == scores else ""

    def _drops(self, statement: ast.stmt, weights: str) -> bool:
        """`weights = self.dropout(weights)`"""
        match statement:
            case ast.Assign(
                [ast.Name(name)], ast.Call(ast.Attribute(ast.Name("self"), _), [ast.Name(given)])
            ):
                return name == given == weights
        return False


def assigned(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """The targets and values of a plain assignment, `a = x` or `a, b = x, y`; none of another."""
    match statement:
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
            return list(zip(targets, values, strict=True))
        case ast.Assign([ast.Name() | ast.Attribute() as target], value):
            return [(target, value)]
    return []


def _unscaled(node: ast.expr) -> ast.expr:
    """The `scores` of `scores / size`."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
        node = node.left
    return node


def _scales(statement: ast.stmt, scores: str) -> bool:
    match statement:
        case ast.AugAssign(ast.Name(name), ast.Div() | ast.Mult(), _):
            return name == scores
        case ast.Assign([ast.Name(name)], ast.BinOp() as value) if name == scores:
            left = _unscaled(value)
            return isinstance(left, ast.Name) and left.id == scores
    return False
