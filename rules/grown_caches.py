"""Caches of keys and values that a program's own model extends with those of new tokens."""

from __future__ import annotations

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    Example,
    Insert,
    Replace,
    ReplaceStatement,
    Rewrite,
    Rule,
    Safety,
)
from migrator.rule_api.generation import Counter, GrownCaches, grown_caches, token_counters
from migrator.rule_api.training import free_name, with_key_of

_MODEL = """
            import torch
            from torch import nn
            class Attention(nn.Module):
                def __init__(self, length, width):
                    super().__init__()
                    self.qkv = nn.Linear(width, 3 * width)
                    self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))
                    self.register_buffer("keys", None, persistent=False)
                    self.register_buffer("values", None, persistent=False)
                    {begins}
                def forward(self, x, use_cache=False):
                    length = x.shape[1]
                    q, k, v = self.qkv(x).chunk(3, -1)
                    if use_cache:
                        {grows}
                        keys, values = self.keys, self.values
                    else:
                        keys, values = k, v
                    scores = q @ keys.mT
                    count = keys.shape[-2]
                    if use_cache:
                        later = self.mask.bool()[{rows}, :count]
                        self.position += length
                    else:
                        later = self.mask.bool()[:length, :length]
                    scores = scores.masked_fill(later, -torch.inf)
                    weights = torch.softmax(scores, dim=-1)
                    return weights @ values
                def reset(self):
                    {resets}
            class Model(nn.Module):
                def __init__(self):
                    super().__init__()
                    {counts}
                def forward(self, tokens, use_cache=True):
                    length = tokens.shape[1]
                    places = {places}
                    self.seen += length
                    x = self.tokens(tokens) + self.places(places)
                    return self.head(self.attention(x, use_cache=use_cache))
            model = Model(){moved}
            with torch.no_grad():
                model(prompt)
            """


def _filled(*, moved: str, **parts: str) -> str:
    text = _MODEL
    for name, part in (*parts.items(), ("moved", moved)):
        line = next(line for line in text.splitlines() if f"{{{name}}}" in line)
        indent = line[: len(line) - len(line.lstrip())]
        text = text.replace(f"{{{name}}}", part.replace("\n", f"\n{indent}"))
    return text


_PARTS = {
    "begins": "self.position = 0",
    "grows": "if self.keys is None:\n    self.keys, self.values = k, v\nelse:\n"
    "    self.keys = torch.cat([self.keys, k], dim=1)\n"
    "    self.values = torch.cat([self.values, v], dim=1)",
    "rows": "self.position : self.position + length",
    "resets": "self.keys, self.values = None, None\nself.position = 0",
    "counts": "self.seen = 0",
    "places": "torch.arange(self.seen, self.seen + length, device=tokens.device)",
}


GROWN = Rule(
    code="TOK003",
    name="grown-cache",
    summary="a cache of keys and values that grows gets its full length at once",
    why="""Each token makes the cache longer, and each length needs a program; so does each
position, if it is a Python number. Instead, the cache is allocated once, and new keys and values
are written at a position that is a tensor: a buffer of the module, which counts on the device. The
model's own causal mask has a row for each position, and masks all later ones: their weight is
exactly zero. So one program serves all positions. A new text only sets the counter to zero: what an
older text left is masked in the same way.

The numbers stay the same if only this file's code reads the caches and the counters, and the model
attends to as many new keys as it has new queries. The source can't show this, so the rewrite needs
`--unsafe`; `tpu-migrate verify` compares the results.

Only the following form is known. For other forms, ADV002 says at each place what to write.

The caches are attributes that begin as None. `if self.keys is None:` gives them the first keys and
values, and its `else:` joins them with later ones, along dimension 1, 2 or -2. They are None again
only where the counter is set to 0.

Only that method reads them: by names, `transpose`, `permute`, `mT`, `repeat_interleave`,
`contiguous` and `float`, in one product of scores and one of weights. The scores are at most
scaled, and masked with minus infinity by rows of a table (`self.mask[self.position : self.position
+ n, :length]`) that is `torch.triu(torch.ones(length, length), diagonal=1)`. One softmax follows.

The counter begins as 0, is set to 0 elsewhere together with the caches, and grows by `+= n` after
the mask. Other counters of the file become tensors, too, if they begin so, and are only read by
`torch.arange(self.seen, self.seen + n)` or as the bounds of a slice.

The file switches gradients off somewhere: a cache that stays would keep the graphs of all
texts.""",
    safety=Safety.UNSAFE,
    examples=(
        Example(
            _filled(**_PARTS, moved=".cuda()"),
            after=_filled(
                begins='self.register_buffer("position", torch.tensor(0), persistent=False)',
                grows="at = self.position + torch.arange(k.shape[1], device=k.device)\n"
                "if self.keys is None or len(self.keys) != len(k):\n"
                "    self.keys = k.new_zeros(len(k), self.mask.shape[-1], *k.shape[2:])\n"
                "    self.values = v.new_zeros(len(v), self.mask.shape[-1], *v.shape[2:])\n"
                "self.keys[:, at] = k\n"
                "self.values[:, at] = v",
                rows="at",
                resets="self.position.zero_()",
                counts='self.register_buffer("seen", torch.tensor(0), persistent=False)',
                places="self.seen + torch.arange(length, device=tokens.device)",
                moved='.to("{device}")',
            ),
            unsafe=True,
        ),
        Example(
            _filled(
                **{**_PARTS, "resets": "self.keys, self.values = None, None  # not self.position"},
                moved="",
            ),
            unsafe=True,
        ),
        Example(
            _filled(
                **{**_PARTS, "rows": ":length"},  # which do not move on with the position
                moved="",
            ),
            unsafe=True,
        ),
    ),
)

_WHY = (
    "each length is a new shape, which is compiled again or runs operator by operator: with a "
    "cache of full length and a position that is a tensor, one program serves all; the "
    "tokens are the same if no other file reads the caches or the counters"
)


@GROWN.on("cache", "grown")
def grown(ctx: Context, found: Construct) -> Decision:
    tree = ctx.names.tree
    caches = grown_caches(ctx.names, tree)
    edits = [edit for made in caches for edit in _written(ctx, made)]
    rows = {made.hidden for made in caches}
    for counter in token_counters(ctx.names, tree):
        edits += _counted(ctx, counter, rows)
    drops = [
        statement
        for made in caches
        for statement in (*made.choice.body, *made.choice.orelse, *made.emptied)
    ]
    return Rewrite(edits, ctx.code.torch()[1], note=_WHY, works=True, drops=drops)


def _written(ctx: Context, made: GrownCaches) -> list[Edit]:
    """The replacement of `if self.keys is None: … else: …`, and the rows of the mask."""
    torch, tree = ctx.code.torch()[0], ctx.names.tree
    at = free_name(made.function, "at", "positions", "cache_positions")
    first = made.caches[0].new
    places = f"{torch}.arange({first}.shape[{made.dim}], device={first}.device)"
    allocated = [f"self.{c.name} = {_zeros(c.new, made.dim, made.table)}" for c in made.caches]
    key = {1: f":, {at}", 2: f":, :, {at}", -2: f"..., {at}, :"}[made.dim]
    written = [f"self.{cache.name}[{key}] = {cache.new}" for cache in made.caches]
    line = f"{at} = self.{made.counter.name} + {places}"
    edits: list[Edit] = [
        Insert(tree, made.choice, [line], before=True),
        Insert(tree, made.choice, written),
        *(Delete(cache.joined) for cache in made.caches),
        *map(Delete, made.emptied),
        Replace(made.choice.test, f"{{test}} or {_other_batch(made)}", {"test": made.choice.test}),
        Replace(made.hidden, with_key_of(made.hidden, 0, ast.Name(at)), {"x": made.hidden.value}),
    ]
    edits.append(Insert(tree, made.choice.body[0], allocated, before=True))
    return [*edits, *map(Delete, made.choice.body)]


def _other_batch(made: GrownCaches) -> str:
    """Whether a cache belongs to another number of texts."""
    cache = next(c for c in made.caches if f"self.{c.name}" in ast.unparse(made.choice.test))
    return f"len(self.{cache.name}) != len({cache.new})"


def _zeros(new: str, dim: int, table: str) -> str:
    """A cache of full length, otherwise with the shape of new keys."""
    before = f"len({new})" if dim == 1 else f"*{new}.shape[:{dim}]"
    behind = f"{new}.shape[-1]" if dim == -2 else f"*{new}.shape[{dim + 1}:]"
    return f"{new}.new_zeros({before}, {table}.shape[-1], {behind})"


def _counted(ctx: Context, counter: Counter, rows: set[ast.Subscript]) -> list[Edit]:
    """A counter as a buffer, and its uses."""
    torch, name = ctx.code.torch()[0], counter.name
    begins = f'self.register_buffer("{name}", {torch}.tensor(0), persistent=False)'
    edits: list[Edit] = [ReplaceStatement(counter.begins, begins)]
    edits += [ReplaceStatement(reset, f"self.{name}.zero_()") for reset in counter.resets]
    replaced = counter.places.replaced(ctx.names, torch)
    return [*edits, *(Replace(*each) for each in replaced if each[0] not in rows)]
