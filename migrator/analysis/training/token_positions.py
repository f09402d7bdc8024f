"""Loops that pass a model tokens from one position to another: `model(x[:, begin:end], begin)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.training.sync_points import Hot, Loop


@dataclass(frozen=True)
class Window:
    """The tokens that a model receives in such a loop."""

    node: ast.Subscript  # x[:, begin:end]
    call: ast.Call
    loop: Loop
    begin: ast.expr
    end: ast.expr

    @property
    def numbers(self) -> list[ast.expr]:
        """The arguments that are also one of the bounds, or a name from which one is computed."""
        bounds = [ast.dump(self.begin), ast.dump(self.end)]
        names = {n.id for part in (self.begin, self.end) for n in ast.walk(part)
                 if isinstance(n, ast.Name)}  # fmt: skip
        return [
            value
            for value in self.call.args
            if (value.id in names if isinstance(value, ast.Name) else ast.dump(value) in bounds)
        ]

    @property
    def positions(self) -> str:
        """The positions of its tokens, as a list or a tensor on the CPU."""
        begin, end = ast.unparse(self.begin), ast.unparse(self.end)
        one = ast.unparse(ast.parse(f"{end} - 1")) == begin
        return f"[{begin}]" if one else f"torch.arange({begin}, {end})"

    def beside(self) -> Iterator[tuple[ast.Subscript, int]]:
        """Other subscripts in the loop with such a number as a key, and which number."""
        changing = _changing(self.loop)
        numbers = {n.id for part in (self.begin, self.end) for n in ast.walk(part)
                   if isinstance(n, ast.Name) and n.id in changing}  # fmt: skip
        for node in ast.walk(self.loop):
            if isinstance(node, ast.Subscript):
                for place, key in enumerate(keys(node)):
                    if isinstance(key, ast.Name) and key.id in numbers:
                        yield node, place
                        break


def window(hot: Hot, node: ast.Subscript) -> Window | None:
    """A subscript as a model's window, if it is in a loop that changes its bounds."""
    match keys(node), hot.names.parents.get(node):
        case (
            [ast.Slice(None, None, None), ast.Slice(ast.expr() as begin, ast.expr() as end, None)],
            ast.Call(args=given) as call,
        ) if node in given:
            loop = hot.loop(node)
            if loop is not None and hot.is_model(call.func):
                names = {n.id for n in ast.walk(end) if isinstance(n, ast.Name)}
                return Window(node, call, loop, begin, end) if names & _changing(loop) else None
    return None


def windows(hot: Hot) -> Iterator[Window]:
    """The windows of a file whose model also receives a number."""
    for node in hot.names.all(ast.Subscript):
        if (told := window(hot, node)) is not None and len(told.numbers) == 1:
            yield told


def _changing(loop: Loop) -> set[str]:
    """Names whose value changes in each iteration."""
    parts = [loop.target, *loop.body] if isinstance(loop, ast.For) else loop.body
    return {
        n.id
        for part in parts
        for n in ast.walk(part)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def keys(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def with_key(node: ast.Subscript, place: int, key: ast.expr | None) -> ast.expr:
    """`x[…, key, …]`; without a key, the whole dimension."""
    chosen = [*keys(node)]
    chosen[place] = ast.Slice() if key is None else key
    while chosen and ast.unparse(chosen[-1]) == ":":
        chosen.pop()
    if not chosen:
        return node.value
    key = chosen[0] if len(chosen) == 1 else ast.Tuple(chosen, ast.Load())
    return ast.Subscript(node.value, key, ast.Load())


def with_key_of(node: ast.Subscript, place: int, key: ast.expr | None) -> str:
    """The same as a template, in which `{x}` is the subscripted value."""
    hole = ast.Subscript(ast.Name("{x}", ast.Load()), node.slice, node.ctx)
    return ast.unparse(with_key(hole, place, key))


@dataclass
class TokenPositions:
    """Where `text`, the number of earlier tokens, is only the begin of new tokens' positions."""

    text: str
    ranges: list[ast.Call] = field(default_factory=list)  # torch.arange(seen, seen + n)
    slices: list[tuple[ast.Subscript, int]] = field(default_factory=list)  # x[seen : seen + n]

    def count(self, begin: ast.expr, end: ast.expr) -> ast.expr | None:
        """The `n` of `seen` and `seen + n`."""
        match end:
            case ast.BinOp(one, ast.Add(), other) if dotted(begin) == self.text:
                if dotted(one) == self.text:
                    return other
                return one if dotted(other) == self.text else None
        return None

    def note(self, names: Names, node: ast.expr) -> bool:
        """Record a use of the number, if it is such a one."""
        above = names.parents[node]
        if isinstance(above, ast.BinOp):
            above = names.parents[above]
        match above:
            case ast.Call(func, [begin, end], keywords):
                known = all(k.arg in ("device", "dtype") for k in keywords)
                if not known or names.qualified(func) != "torch.arange":
                    return False
                if above not in self.ranges:
                    self.ranges.append(above)
                return self.count(begin, end) is not None
            case ast.Slice(ast.expr() as begin, ast.expr() as end, None):
                found = _read_at(names, above)
                if found is not None and found not in self.slices:
                    self.slices.append(found)
                return found is not None and self.count(begin, end) is not None
        return False

    def replaced(
        self, names: Names, torch: str
    ) -> Iterator[tuple[ast.expr, str, dict[str, ast.expr]]]:
        """What to write if the number is a tensor: nodes, templates and what fills them."""
        for call in self.ranges:
            count = self.count(*call.args)
            assert count is not None
            given = {f"{k.arg}": k.value for k in call.keywords}
            rest = "".join(f", {word}={{{word}}}" for word in given)
            text = f"{self.text} + {{arange}}({{count}}{rest})"
            is_whole = isinstance(names.parents[call], ast.Assign | ast.Call)
            holes = {"arange": call.func, "count": count, **given}
            yield call, text if is_whole else f"({text})", holes
        for node, place in self.slices:
            key = keys(node)[place]
            assert isinstance(key, ast.Slice) and key.lower is not None and key.upper is not None
            count = self.count(key.lower, key.upper)
            assert count is not None
            device = f"{ast.unparse(node.value)}.device"
            at = f"{self.text} + {torch}.arange({ast.unparse(count)}, device={device})"
            places = ast.parse(at, mode="eval").body
            yield node, with_key_of(node, place, places), {"x": node.value}


def _read_at(names: Names, key: ast.Slice) -> tuple[ast.Subscript, int] | None:
    """Where it is read, without another key that would move its dimension."""
    above = names.parents[key]
    node = names.parents[above] if isinstance(above, ast.Tuple) else above
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return None
    others = [k for k in keys(node) if k is not key]
    plain = all(isinstance(k, ast.Slice) and k.lower is None and k.step is None for k in others)
    return (node, keys(node).index(key)) if plain else None


def free_name(function: ast.AST, *names: str) -> str:
    """The first of these names that a function doesn't use."""
    taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    taken |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    return next((name for name in names if name not in taken), f"{names[-1]}_")
