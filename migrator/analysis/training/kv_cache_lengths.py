"""How long a cache is that a model is given, and what else a file does with such caches.

    past_length = 0 if past is None else past[0][0].size(-2)
    places = torch.arange(past_length, past_length + n)
    for block, layer_past in zip(self.blocks, past):
        x, present = block(x, layer_past)
        presents.append(present)

The length may be a tensor if it is only the begin of positions. Otherwise caches may only be passed
on: whatever else reads one would see its full length.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.training.score_forms import assigned
from migrator.analysis.training.token_positions import TokenPositions

_CACHE = re.compile(r"(?:^|_)(?:pasts?|presents?|caches?)(?:$|_)", re.I)
_KEEPS = ("append",)


@dataclass(frozen=True)
class CacheLength:
    """`past_length = past[0][0].size(-2)`"""

    function: ast.AST
    places: TokenPositions
    reads: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)  # and the cache, `past[0]`


def cache_lengths(
    names: Names, given: str, dim: str, known: set[ast.AST]
) -> list[CacheLength] | None:
    """All lengths that are read; None if caches are used in an unknown way."""
    found: dict[tuple[ast.AST, str], CacheLength] = {}
    words = _words(names, given, known)
    for node in names.order:
        if not isinstance(node, ast.Subscript | ast.Call):
            continue
        held = _measured(node, dim)
        if held is None or _base_name(held) not in words:
            continue
        function, name = names.function(node), _assigned_to(names, node)
        if function is None or not name:
            return None
        length = found.setdefault((function, name), CacheLength(function, TokenPositions(name)))
        length.reads.append((node, held))
    if not found or not all(_is_position(names, length) for length in found.values()):
        return None
    reads = {n for length in found.values() for read, _ in length.reads for n in ast.walk(read)}
    words -= {length.places.text for length in found.values()}
    return [*found.values()] if _are_only_passed(names, words, known | reads) else None


def _measured(node: ast.expr, dim: str) -> ast.expr | None:
    """The `past[0]` of `past[0][0].size(-2)`"""
    dims = {"-2": {"-2", "2"}, "2": {"-2", "2"}}.get(dim, {dim})
    match node:
        case ast.Subscript(
            ast.Attribute(ast.Subscript(held, ast.Constant(0 | 1)), "shape"), key
        ) | ast.Call(
            ast.Attribute(ast.Subscript(held, ast.Constant(0 | 1)), "size"), [key], []
        ) if ast.unparse(key) in dims:
            return held
    return None


def _base_name(node: ast.expr) -> str:
    """`past` for `past`, `outputs.past`, `past[0]`, `past[0][0]`"""
    while isinstance(node, ast.Subscript):
        node = node.value
    return (dotted(node) or "").rpartition(".")[2]


def _assigned_to(names: Names, node: ast.expr) -> str:
    """The name of `n = past[0][0].size(-2)`, also with `if past is not None else 0`."""
    above = names.parents[node]
    match above:
        case ast.IfExp(_, body, ast.Constant(0)) if body is node:
            node, above = above, names.parents[above]
        case ast.IfExp(_, ast.Constant(0), orelse) if orelse is node:
            node, above = above, names.parents[above]
    match above:
        case ast.Assign([ast.Name(name)], value) if value is node:
            return name
    return ""


def _is_position(names: Names, length: CacheLength) -> bool:
    """Whether the length is only the begin of positions."""
    reads = [read for read, _ in length.reads]
    for node in ast.walk(length.function):
        if not isinstance(node, ast.Name) or node.id != length.places.text:
            continue
        if names.function(node) is not length.function:
            return False
        if isinstance(node.ctx, ast.Load):
            if not length.places.note(names, node):
                return False
            continue
        match names.statement(node):
            case ast.Assign([ast.Name()], ast.Constant(number)) if type(number) is int:
                if number != 0:
                    return False
            case ast.Assign([ast.Name()], value):
                if not any(read in ast.walk(value) for read in reads):
                    return False
            case _:
                return False
    return bool(length.places.ranges or length.places.slices)


def most_positions(names: Names, lengths: list[CacheLength]) -> ast.expr | None:
    """The `config.length` of `nn.Embedding(config.length, width)`, which is read at positions."""
    for length in lengths:
        stored = [pair for call in length.places.ranges for pair in assigned(names.statement(call))]
        named = {target.id for target, _ in stored if isinstance(target, ast.Name)}
        for node in ast.walk(length.function):
            match node:
                case ast.Call(func, [ast.Name(name)], []) if name in named:
                    made = _embedding(names, (dotted(func) or "").rpartition(".")[2])
                    if made is not None:
                        return made
    return None


def _embedding(names: Names, name: str) -> ast.expr | None:
    """The size of the only embedding that is assigned to `self.name`, or given by `name=`."""
    found: list[ast.expr] = []
    for call in names.all(ast.Call):
        if names.qualified(call.func) == "torch.nn.Embedding" and call.args:
            above = names.parents[call]
            match above:
                case ast.Assign([ast.Attribute(_, attr)]) if attr == name:
                    found.append(call.args[0])
                case ast.keyword(arg) if arg == name:
                    found.append(call.args[0])
    return found[0] if len(found) == 1 else None


# ---- other uses ----------------------------------------------------------------------------------


def _words(names: Names, given: str, known: set[ast.AST]) -> set[str]:
    """Names that may hold caches: by what they are called, and by where they come from."""
    found = {given}
    for node in names.order:
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if _CACHE.search(name):
                found.add(name)
    while True:
        more = {word for node in names.order for word in _passed(node, found, known)} - found - {""}
        if not more:
            return found
        found |= more


def _passed(node: ast.AST, held: set[str], known: set[ast.AST]) -> Iterator[str]:
    """Other names for what these hold."""
    match node:
        case ast.keyword(arg, value) if arg in held:
            yield from _names_in(value)
        case ast.For(target, given):
            yield from _run_over(target, given, held)
        case ast.Call(ast.Attribute(ast.Name(name), "append"), [value]):
            yield from _alike(name, value, held)
        case ast.Assign([ast.Name(name)], value) if known.isdisjoint(ast.walk(value)):
            yield from _alike(name, value, held)
        case ast.Assign([ast.Tuple([*_, ast.Name(name)])], ast.Call(_, values, keywords)):
            if any(_base_name(value) in held for value in (*values, *(k.value for k in keywords))):
                yield name


def _alike(name: str, value: ast.expr, held: set[str]) -> Iterator[str]:
    """Both hold caches if one does."""
    parts = [*_names_in(value)]
    if name in held:
        yield from parts
    if held & {*parts}:
        yield name


def _names_in(value: ast.expr) -> Iterator[str]:
    """The names whose value an expression may be, or hold."""
    match value:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield _base_name(value)
        case ast.IfExp(_, body, orelse):
            yield from _names_in(body)
            yield from _names_in(orelse)
        case ast.BinOp(left, ast.Add(), right):
            for side in (left, right):
                parts = side.elts if isinstance(side, ast.Tuple | ast.List) else [side]
                for each in parts:
                    yield from _names_in(each)
        case ast.BoolOp(_, values):
            for each in values:
                yield from _names_in(each)


def _run_over(target: ast.expr, given: ast.expr, held: set[str]) -> Iterator[str]:
    """`for i, (block, past) in enumerate(zip(self.blocks, pasts)):`"""
    match target, given:
        case ast.Tuple([_, inner]), ast.Call(ast.Name("enumerate"), [value, *_]):
            yield from _run_over(inner, value, held)
        case ast.Tuple(targets), ast.Call(ast.Name("zip"), values):
            for one, value in zip(targets, values, strict=False):
                yield from _run_over(one, value, held)
        case ast.Name(name), _:
            yield from _alike(name, given, held)


def _are_only_passed(names: Names, words: set[str], known: set[ast.AST]) -> bool:
    """Whether no cache is taken apart or changed, other than in the known places."""
    for node in names.order:
        if node in known:
            continue
        match node:
            case ast.Name(name) | ast.Attribute(attr=name) if name in words:
                if isinstance(node.ctx, ast.Load) and not _is_passed(names, node):
                    return False
            case ast.Subscript(ast.Attribute(ast.Subscript(ast.Subscript()), "shape")):
                return False  # the size of part of a part
            case ast.Call(ast.Attribute(ast.Subscript(ast.Subscript()), "size")):
                return False
    return True


def _is_passed(names: Names, node: ast.expr) -> bool:
    above = names.parents[node]
    while isinstance(above, ast.IfExp | ast.BoolOp | ast.Starred):
        node, above = above, names.parents[above]
    match above:
        case ast.Subscript(value, ast.Constant() | ast.Name() | ast.UnaryOp()) if value is node:
            return _is_layer(names, above)
        case ast.Subscript(value) if value is node:
            return False
        case ast.Attribute(attr=attr):
            return attr in _KEEPS
        case ast.Call(func):
            called = names.qualified(func) or ""
            return not called.startswith("torch.") and called != "len"
        case ast.Assign(targets):
            return all(isinstance(t, ast.Name | ast.Attribute) for t in targets)
        case ast.comprehension():
            return False
        case ast.For(target):
            return isinstance(target, ast.Name)
        case ast.AugAssign(op=op) | ast.BinOp(op=op):
            return isinstance(op, ast.Add)
        case _:
            return True


def _is_layer(names: Names, node: ast.Subscript) -> bool:
    """`past[i]`, given to a layer or another name"""
    above = names.parents[node]
    while isinstance(above, ast.IfExp):
        above = names.parents[above]
    match above:
        case ast.Call(func):
            return not (names.qualified(func) or "").startswith("torch.")
        case ast.keyword() | ast.Compare():
            return True
        case ast.Assign([ast.Name()]):
            return True
    return False
