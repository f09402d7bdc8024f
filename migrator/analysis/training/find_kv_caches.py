"""Caches of keys and values that a model writes at an integer position: those of a few known forms.

    self.keys[:, start : start + length] = k
    self.values[:, start : start + length] = v
    scores = q @ self.keys[:, : start + length].mT / math.sqrt(size)
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ self.values[:, : start + length]

In these forms all uses of the position are known: the caches are written and tables are read there,
it is the length of a causal mask, or it is passed on. Everything read from a cache goes to one
softmax, or to `scaled_dot_product_attention`, so that anything after the last position can be
hidden there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.causal_masks import causal_mask
from migrator.analysis.training.token_positions import keys

Node = TypeVar("Node", bound=ast.AST)

_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")
_SDPA = "torch.nn.functional.scaled_dot_product_attention"
_OF_SDPA = {"query", "key", "value", "attn_mask", "dropout_p", "scale", "enable_gqa"}
_MATMUL = ("torch.matmul", "torch.bmm")
_LENGTH = re.compile(r"\w+(?:\.shape\[-?\d+\]|\.size\(-?\d+\))?")


@dataclass(frozen=True)
class PositionSubscript:
    """A subscript with one key, at `place`, that is computed from the position."""

    node: ast.Subscript
    place: int

    @property
    def keys(self) -> list[ast.expr]:
        return keys(self.node)


@dataclass(frozen=True)
class Attention:
    """Where attention scores are completely known."""

    cache: PositionSubscript
    weights: ast.Call  # softmax(scores), or scaled_dot_product_attention
    scores: str  # "" for the latter
    is_causal: bool  # a mask is passed in, if there are several tokens


@dataclass
class ForwardPass:
    """A function that receives the position of its first token."""

    function: ast.FunctionDef
    start: ast.arg
    length: ast.expr  # the number of tokens
    at: list[PositionSubscript] = field(default_factory=list)  # [start : start + length]
    until: list[PositionSubscript] = field(default_factory=list)  # [: start + length]
    attention: Attention | None = None
    mask: ast.If | None = None  # creates it for several tokens

    @property
    def first(self) -> ast.stmt:
        """The first statement that uses positions."""
        held = {part.node for part in self.at}
        return next(s for s in self.function.body if not held.isdisjoint(ast.walk(s)))


@once_in
def kv_passes(names: Names, tree: ast.Module) -> list[ForwardPass]:
    """The functions of a file between a position and its caches; none if one has another form."""
    summed = [n for n in names.all(ast.Slice) if isinstance(n.upper, ast.BinOp)]
    holding = {names.function(node) for node in summed}
    methods = (f for f in _methods(tree) if f in holding)
    found = [made for f in methods if (made := _pass(names, f)) is not None]
    writes = [made for made in found if any(map(_is_write, made.at))]
    given = {made.start.arg for made in writes}
    found = [made for made in found if made.start.arg in given]
    found += _masking(names, tree, given, {made.function for made in found})
    if not found or not all(_is_known(names, made) for made in found):
        return []
    known = {made.function for made in found}
    for function in names.order:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            told = {a.arg for a in _arguments(function)} & given
            if told and function not in known and not _passes_on(names, function, told):
                return []
    makes_mask = any(made.mask is not None for made in found)
    needs_mask = {made.attention.is_causal for made in writes if made.attention is not None}
    return found if needs_mask == {makes_mask} else []


def _methods(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            yield from (m for m in owner.body if isinstance(m, ast.FunctionDef))


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    a = function.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs]


def _pass(names: Names, function: ast.FunctionDef) -> ForwardPass | None:
    """A method with slices computed from a parameter and a length."""
    made: ForwardPass | None = None
    parameters = {a.arg: a for a in function.args.args[1:]}
    for node in _own(names, function, ast.Subscript):
        for place, key in enumerate(keys(node)):
            match key:
                case ast.Slice(lower, ast.BinOp(one, ast.Add(), other), None):
                    pass
                case _:
                    continue
            if isinstance(other, ast.Name) and other.id in parameters:
                one, other = other, one
            if not isinstance(one, ast.Name) or one.id not in parameters:
                continue
            if lower is not None and ast.dump(lower) != ast.dump(one):
                continue
            made = made or ForwardPass(function, parameters[one.id], other)
            if one.id == made.start.arg and ast.dump(other) == ast.dump(made.length):
                (made.until if lower is None else made.at).append(PositionSubscript(node, place))
    return made


def _masking(
    names: Names, tree: ast.Module, given: set[str], known: set[ast.FunctionDef]
) -> Iterator[ForwardPass]:
    """Methods that create a mask, and read nothing at the position themselves."""
    for function in _methods(tree):
        for start in function.args.args[1:] if function not in known else ():
            mask = causal_mask(names, function, start.arg) if start.arg in given else None
            if mask is not None and isinstance(mask.test, ast.Compare):
                yield ForwardPass(function, start, mask.test.left, mask=mask)


def _own(names: Names, function: ast.AST, kind: type[Node]) -> Iterator[Node]:
    for node in ast.walk(function):
        if isinstance(node, kind) and names.function(node) is function:
            yield node


# ---- what the function does with the position ----------------------------------------------------


def _is_known(names: Names, made: ForwardPass) -> bool:
    """Whether all uses of the position are known, and happen in each call."""
    parts = [*made.at, *made.until]
    bases = {c for part in parts for c in ast.walk(part.node.value)}
    if any(isinstance(n, ast.Name) and n.id == made.start.arg for n in bases):
        return False
    if not all(map(_has_plain_keys, parts)) or not _is_steady(names, made):
        return False
    if any(names.statement(part.node) not in made.function.body for part in parts):
        return False
    made.mask = causal_mask(names, made.function, made.start.arg)
    if not made.at and made.mask is None:
        return False
    within = {n for part in parts for n in ast.walk(part.keys[part.place])}
    within |= set(ast.walk(made.mask)) if made.mask is not None else set()
    uses = [n for n in ast.walk(made.function) if isinstance(n, ast.Name)]
    uses = [n for n in uses if n.id == made.start.arg and n not in within]
    if not all(_is_passed_on(names, n, made.function) for n in uses):
        return False
    writes = [part for part in made.at if _is_write(part)]
    if not writes:
        return not made.until
    made.attention = _attention(names, made, writes)
    return made.attention is not None


def _is_write(part: PositionSubscript) -> bool:
    return isinstance(part.node.ctx, ast.Store)


def _has_plain_keys(part: PositionSubscript) -> bool:
    """`[:b, start : start + n, :]`: other keys move the dimension that an index is for."""
    others = [key for place, key in enumerate(part.keys) if place != part.place]
    return all(isinstance(k, ast.Slice) and k.lower is None and k.step is None for k in others)


def _is_steady(names: Names, made: ForwardPass) -> bool:
    """Whether position and length don't change in the function."""
    of_length = [n.id for n in ast.walk(made.length) if isinstance(n, ast.Name)]
    stores = [n.id for n in ast.walk(made.function) if isinstance(n, ast.Name)
              and not isinstance(n.ctx, ast.Load)]  # fmt: skip
    stores += [a.arg for a in _arguments(made.function)]
    return (
        _LENGTH.fullmatch(ast.unparse(made.length)) is not None
        and stores.count(made.start.arg) == 1
        and all(stores.count(name) == 1 for name in of_length)
    )


def _is_passed_on(names: Names, use: ast.Name, function: ast.AST) -> bool:
    """Whether the position is an argument of a call to the program's own code."""
    above = names.parents.get(use)
    call = names.parents.get(above) if isinstance(above, ast.keyword) else above
    return (
        isinstance(call, ast.Call)
        and call.func is not use
        and names.function(use) is function
        and names.qualified(call.func) is None
    )


def _passes_on(names: Names, function: ast.AST, given: set[str]) -> bool:
    return all(
        isinstance(n.ctx, ast.Load) and _is_passed_on(names, n, function)
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.id in given
    )


# ---- attention -----------------------------------------------------------------------------------


def _attention(
    names: Names, made: ForwardPass, writes: list[PositionSubscript]
) -> Attention | None:
    owner = names.enclosing_class(made.function)
    places = {part.place for part in (*writes, *made.until)}
    caches = [dotted(part.node.value) or "" for part in writes]
    if owner is None or len(places) != 1 or len({*caches}) != len(caches):
        return None
    if any(map(_is_write, made.until)) or not all(_is_assigned(names, part) for part in writes):
        return None
    if {dotted(part.node.value) for part in made.until} != {*caches}:
        return None
    held = {part.node.value for part in (*writes, *made.until)}
    for cache in caches:
        if not _is_finite(names, owner, cache):
            return None
        for node in _own(names, made.function, ast.Attribute):
            if dotted(node) == cache and node not in held and not _is_moved(names, node, cache):
                return None
    weights = [n for n in _own(names, made.function, ast.Call) if _weighs(names, n)]
    if len(weights) != 1 or names.statement(weights[0]) not in made.function.body:
        return None
    (call,) = weights
    body = made.function.body
    if body.index(made.first) >= body.index(_statement(names, call)):
        return None
    if names.qualified(call.func) == _SDPA:
        return _of_sdpa(made, writes[0], call)
    return _of_scores(names, made, writes[0], call)


def _is_assigned(names: Names, part: PositionSubscript) -> bool:
    match names.parents[part.node]:
        case ast.Assign([target]):
            return target is part.node
    return False


def _is_finite(names: Names, owner: ast.ClassDef, cache: str) -> bool:
    """Whether a cache starts as zeros: `self.keys = torch.zeros(…).cuda()`."""
    made = False
    for node in ast.walk(owner):
        match node:
            case ast.Assign([ast.Attribute() as target], value) if dotted(target) == cache:
                pass
            case ast.Call(
                ast.Attribute(ast.Name("self"), "register_buffer"),
                [ast.Constant(str(name)), value, *_],
            ) if f"self.{name}" == cache:
                pass
            case _:
                continue
        while isinstance(value, ast.Call) and names.qualified(value.func) != "torch.zeros":
            if not isinstance(value.func, ast.Attribute):
                return False
            value = value.func.value
        made |= isinstance(value, ast.Call)
        if not isinstance(value, ast.Call) and dotted(value) not in (cache, None):
            return False
    return made


def _is_moved(names: Names, node: ast.Attribute, cache: str) -> bool:
    """`self.keys = self.keys.to(x)`"""
    match names.statement(node):
        case ast.Assign([target], ast.Call(ast.Attribute(value, "to"))):
            return dotted(target) == dotted(value) == cache
    return False


def _weighs(names: Names, call: ast.Call) -> bool:
    name = names.qualified(call.func)
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "softmax"
    return name in (*_SOFTMAX, _SDPA) or (name is None and is_method)


def _of_sdpa(made: ForwardPass, cache: PositionSubscript, call: ast.Call) -> Attention | None:
    mask = argument(call, 3, "attn_mask")
    others = {k.arg for k in call.keywords} - _OF_SDPA
    if others or len(call.args) > 4:
        return None
    match mask:
        case None | ast.Constant(value=None):
            return Attention(cache, call, "", False)
        case ast.Name(id=name) if name in {a.arg for a in _arguments(made.function)}:
            return Attention(cache, call, "", True)
    return None


def _of_scores(
    names: Names, made: ForwardPass, cache: PositionSubscript, call: ast.Call
) -> Attention | None:
    """Scores that are a product of queries and keys, and only scaled and masked."""
    is_function = names.qualified(call.func) is not None
    dim = argument(call, 1 if is_function else 0, "dim")
    given = call.args[0] if is_function and call.args else getattr(call.func, "value", None)
    while isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
        if given.func.attr not in ("float", "to"):
            return None
        given = given.func.value
    if dim is None or ast.unparse(dim) != "-1" or not isinstance(given, ast.Name):
        return None
    scores, masks = given.id, 0
    parameters = {a.arg for a in _arguments(made.function)}
    body = made.function.body
    before = body[: body.index(_statement(names, call))]
    steps = [s for s in before if any(_stores(n, scores) for n in ast.walk(s))]
    if not steps or not _is_product(names, steps[0], scores):
        return None
    for step in steps[1:]:
        mask = _added_mask(step, scores)
        if mask in parameters:
            masks += 1
        elif not _is_scaled(step, scores):
            return None
    return Attention(cache, call, scores, masks > 0) if masks <= 1 else None


def _statement(names: Names, node: ast.AST) -> ast.stmt:
    statement = names.statement(node)
    assert statement is not None
    return statement


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _is_product(names: Names, step: ast.stmt, scores: str) -> bool:
    """`scores = q @ k / size`"""
    match step:
        case ast.Assign([ast.Name(name)], value) if name == scores:
            while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div | ast.Mult):
                value = value.left
            if isinstance(value, ast.BinOp):
                return isinstance(value.op, ast.MatMult)
            return isinstance(value, ast.Call) and names.qualified(value.func) in _MATMUL
    return False


def _is_scaled(step: ast.stmt, scores: str) -> bool:
    """`scores = scores / size`"""
    match step:
        case ast.Assign([ast.Name(name)], ast.BinOp(ast.Name(left), ast.Div() | ast.Mult(), _)):
            return name == left == scores
        case ast.AugAssign(ast.Name(name), ast.Div() | ast.Mult(), _):
            return name == scores
    return False


def _added_mask(step: ast.stmt, scores: str) -> str:
    """The `mask` of `if mask is not None: scores = scores + mask`."""
    match step:
        case ast.If(
            ast.Compare(ast.Name(mask), [ast.IsNot()], [ast.Constant(value=None)]),
            [ast.Assign([ast.Name(name)], ast.BinOp(ast.Name(left), ast.Add(), ast.Name(added)))],
            [],
        ):
            return mask if name == left == scores and added == mask else ""
        case ast.If(
            ast.Compare(ast.Name(mask), [ast.IsNot()], [ast.Constant(value=None)]),
            [ast.AugAssign(ast.Name(name), ast.Add(), ast.Name(added))],
            [],
        ):
            return mask if name == scores and added == mask else ""
    return ""
