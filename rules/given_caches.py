"""Caches of keys and values that a program's own attention is given, and returns longer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.rule_api import (
    AddParameter,
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Example,
    Insert,
    Replace,
    Rewrite,
    Rule,
    Safety,
)
from migrator.rule_api.generation import GivenCache, Join, Shown, given_caches
from migrator.rule_api.training import free_name, keys, with_key_of

_MODEL = """
            import torch
            from torch import nn
            from torch.nn import functional as F
            class Attention(nn.Module):
                def __init__(self, config):
                    super().__init__()
                    {limit}
                    self.qkv = nn.Linear(config.width, 3 * config.width)
                def forward(self, x, past=None):
                    q, k, v = self.qkv(x).chunk(3, dim=-1)
                    {joins}
                    y = F.scaled_dot_product_attention(q, k, v, {causal})
                    return y, present
            class Model(nn.Module):
                def __init__(self, config):
                    super().__init__()
                    self.tokens = nn.Embedding(config.words, config.width)
                    self.places = nn.Embedding(config.length, config.width)
                    self.layers = nn.ModuleList(Attention(config) for _ in range(2))
                def forward(self, tokens, pasts=None):
                    n = tokens.shape[1]
                    begin = 0 if pasts is None else {begin}
                    places = {places}
                    x = self.tokens(tokens) + self.places(places)
                    presents = []
                    for layer, past in zip(self.layers, pasts or [None] * len(self.layers)):
                        x, present = layer(x, past)
                        presents.append(present)
                    return x @ self.tokens.weight.mT, presents
            model = Model(config){moved}
            """


def _filled(**parts: str) -> str:
    text = _MODEL
    for name, part in parts.items():
        line = next(line for line in text.splitlines() if f"{{{name}}}" in line)
        indent = line[: len(line) - len(line.lstrip())]
        if not part:
            text = text.replace(f"{line}\n", "")
        text = text.replace(f"{{{name}}}", part.replace("\n", f"\n{indent}"))
    return text


_PARTS = {
    "limit": "",
    "joins": "if past is not None:\n    k = torch.cat((past[0], k), dim=-2)\n"
    "    v = torch.cat((past[1], v), dim=-2)\npresent = (k, v)",
    "causal": "is_causal=past is None",
    "begin": "pasts[0][0].size(-2)",
    "places": "torch.arange(begin, begin + n, device=tokens.device)",
}


GIVEN = Rule(
    code="TOK004",
    name="given-cache",
    summary="a cache of keys and values that is given and returned gets its full length at once",
    why="""Each token makes the cache longer, and each length needs a program. Instead, the first
call returns a cache of full length, with the number of tokens, a tensor, as another part. So one
program serves all positions: new keys and values are written there, and attention sees no later
places; their weight is exactly zero. Calls without a cache, as in training, compute the same as
before.

The numbers stay the same if no other file looks into the caches. The source can't show this, so the
rewrite needs `--unsafe`; `tpu-migrate verify` compares the results.

Only the following form is known. For other forms, ADV002 says at each place what to write.

Below `if past is not None:`, where `past` is a parameter, keys and values are joined with its two
parts (`k = torch.cat((past[0], k), dim=-2)`, also by other names, or transposed), along dimension
1, 2 or -2.

The method returns the pair `(k, v)`, or a `torch.stack` of both.

Otherwise keys and values, at most transposed or repeated, only go to one attention, or to one in
each branch of an `if`. It is a `scaled_dot_product_attention` that is causal if `past is None`. Or
it has scores that are at most scaled, masked by the last rows of a table (`self.mask[:, :, m - n :
m, :m]`, made by `torch.tril` or `torch.triu` of ones), and put through one softmax, which may be in
a method of its own.

The number of tokens is read by `past[0][0].size(-2)` or the like, and is only used as the begin of
positions: `torch.arange(begin, begin + n)`, or the bounds of a slice. Elsewhere the file only
passes caches on: it doesn't cut, reorder or measure them.

The table, or an `nn.Embedding(config.length, ...)` of positions, gives the full length. More tokens
than that are an error in the original, but not on the device.""",
    safety=Safety.UNSAFE,
    examples=(
        Example(
            _filled(**_PARTS, moved=".cuda()"),
            after=_filled(
                limit="self.cache_length = config.length",
                joins="at = torch.arange(k.shape[-2], device=k.device)\n"
                "if past is not None:\n    at = past[2] + at\n"
                "    k = past[0].index_copy(-2, at, k)\n"
                "    v = past[1].index_copy(-2, at, v)\n"
                "rest = (0, 0, 0, self.cache_length - k.shape[-2])\n"
                "present = (F.pad(k, rest), F.pad(v, rest), at[-1] + 1)\n"
                "seen = None if past is None else "
                "torch.arange(k.shape[-2], device=k.device)[None] <= at[-1]",
                causal="is_causal=past is None, attn_mask=seen",
                begin="pasts[0][2]",
                places="begin + torch.arange(n, device=tokens.device)",
                moved='.to("{device}")',
            ),
            unsafe=True,
        ),
        Example(
            _filled(
                **{**_PARTS, "joins": f"{_PARTS['joins']}\nself.last = k  # read by others"},
                moved="",
            ),
            unsafe=True,
        ),
        Example(
            _filled(
                **{**_PARTS, "causal": "attn_mask=self.bias"},  # for keys of any length
                moved="",
            ),
            unsafe=True,
        ),
    ),
)

_WHY = (
    "each length is a new shape, which is compiled again or runs operator by operator: with a "
    "cache of full length and a position that is a tensor, one program serves all; the "
    "tokens are the same if no other file looks into the caches"
)


@GIVEN.on("cache", "given")
def given(ctx: Context, found: Construct) -> Decision:
    edits = [edit for made in given_caches(ctx.names, ctx.names.tree) for edit in _edits(ctx, made)]
    return Rewrite(edits, ctx.code.torch()[1], note=_WHY, works=True)


def _edits(ctx: Context, made: GivenCache) -> Iterator[Edit]:
    torch, tree = ctx.code.torch()[0], ctx.names.tree
    functions = [made.function, *(way.inner for way in made.shown if way.inner is not None)]
    both = ast.Module([*functions], [])
    at = free_name(both, "at", "positions", "cache_positions")
    new, dim = made.joins[0].new, made.joins[0].dim
    limit = made.limit
    if made.begin is not None:
        limit = "self.cache_length"
        yield Insert(tree, made.begin, [f"{limit} = {made.limit}"])
    line = f"{at} = {torch}.arange({new}.shape[{dim}], device={new}.device)"
    yield Insert(tree, made.choice, [line], before=True)
    line = f"{at} = {made.given}[{made.counts}] + {at}"
    yield Insert(tree, made.choice.body[0], [line], before=True)
    for node in made.taken:
        yield Replace(node, f"{made.given}[0]" if made.counts == 1 else f"{made.given}[:2]")
    for join in made.joins:
        yield _written(join, at)
    yield from _returned(ctx, made, at, limit, free_name(both, "rest", "padding"))
    for way in made.shown:
        yield from _shown(ctx, made, way, at)
    for length in made.lengths:
        for read, held in length.reads:
            yield Replace(read, f"{{held}}[{made.counts}]", {"held": held})
        for each in length.places.replaced(ctx.names, torch):
            yield Replace(*each)


def _written(join: Join, at: str) -> Edit:
    text = f"{{old}}.index_copy({join.dim}, {at}, {join.new})"
    return Replace(join.call, text, {"old": join.old})


def _returned(ctx: Context, made: GivenCache, at: str, limit: str, rest: str) -> Iterator[Edit]:
    """Keys and values of full length, and the number of tokens."""
    torch, kept = ctx.code.torch()[0], made.joins[0].kept
    pad = ctx.names.spelled("torch.nn.functional") or f"{torch}.nn.functional"
    first, second = made.elements
    zeros = "0, 0, 0, 0, 0" if kept == "1" else "0, 0, 0"
    line = f"{rest} = ({zeros}, {limit} - {ast.unparse(first)}.shape[{kept}])"
    statement = ctx.names.statement(made.returned)
    assert statement is not None
    yield Insert(ctx.names.tree, statement, [line], before=True)
    if made.counts == 1:
        text = f"({pad}.pad({{both}}, {rest}), {at}[-1] + 1)"
        yield Replace(made.returned, text, {"both": made.returned})
    else:
        text = f"({pad}.pad({{k}}, {rest}), {pad}.pad({{v}}, {rest}), {at}[-1] + 1)"
        yield Replace(made.returned, text, {"k": first, "v": second})


def _shown(ctx: Context, made: GivenCache, way: Shown, at: str) -> Iterator[Edit]:
    """Attention doesn't see places behind the last token."""
    torch = ctx.code.torch()[0]
    if way.fused is not None:
        key = ast.unparse(way.fused.args[1])
        seen = free_name(made.function, "seen", "visible")
        places = f"{torch}.arange({key}.shape[-2], device={key}.device)[None]"
        line = f"{seen} = None if {made.given} is None else {places} <= {at}[-1]"
        yield Insert(ctx.names.tree, ctx.names.statement(way.fused), [line], before=True)
        yield EditCall(way.fused, put={"attn_mask": seen})
    if way.rows is not None:
        place = len(keys(way.rows)) - 2
        yield Replace(way.rows, with_key_of(way.rows, place, ast.Name(at)), {"x": way.rows.value})
    if way.inner is not None and way.call is not None:
        yield AddParameter(way.inner, at)
        yield EditCall(way.call, put={at: at})
