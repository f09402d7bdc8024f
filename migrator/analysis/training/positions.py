"""Loops that pass a model tokens from one position to another: `model(x[:, begin:end], begin)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migrator.analysis.training.hot import Hot, Loop


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


def free_name(function: ast.AST, *names: str) -> str:
    """The first of these names that a function doesn't use."""
    taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    taken |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    return next((name for name in names if name not in taken), f"{names[-1]}_")
