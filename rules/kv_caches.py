"""Caches of keys and values that a program's own model writes at a position."""

from __future__ import annotations

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    EditCall,
    Example,
    Insert,
    Keep,
    Replace,
    Rewrite,
    Rule,
    Safety,
    dotted,
)
from migrator.rule_api.generation import Attention, ForwardPass, kv_passes
from migrator.rule_api.training import free_name, keys, window, with_key_of

CACHE = Rule(
    code="TOK002",
    name="kv-cache",
    summary="a cache of keys and values is written at a position that is a tensor",
    why="""A cache that is written at a Python number, and read up to it, needs a program per
position. If the position is a tensor, one program serves all: the cache is read at full length, and
scores after the last position are masked, so their weight is exactly zero. That includes the causal
mask, so the model need not make one.

The numbers stay the same if only this file's code gives the model a mask or calls its parts. The
source can't show this, so the rewrite needs `--unsafe`; `tpu-migrate verify` compares the results.

Only these forms are known; others get the advice ADV012. A file may use the position to write
caches that begin as `torch.zeros` (`self.keys[:, start : start + n] = k`, before or behind `:` and
`:b`), to read them up to `start + n`, to read tables at `start : start + n`, to make a causal mask
of minus infinity if `n > 1`, and to pass it on; nothing else. Attention is one `softmax` of a
product, at most scaled and with the mask added if it is not None, or one
`scaled_dot_product_attention`.""",
    safety=Safety.UNSAFE,
    examples=(
        Example(
            """
            import torch
            from torch import nn
            class Attention(nn.Module):
                def __init__(self, length, width):
                    super().__init__()
                    self.qkv = nn.Linear(width, 3 * width)
                    self.keys = torch.zeros(1, length, width).cuda()
                    self.values = torch.zeros(1, length, width).cuda()
                def forward(self, x, start: int, mask):
                    length = x.shape[1]
                    q, k, v = self.qkv(x).chunk(3, -1)
                    self.keys[:, start : start + length] = k
                    self.values[:, start : start + length] = v
                    scores = q @ self.keys[:, : start + length].mT
                    if mask is not None:
                        scores = scores + mask
                    return scores.softmax(-1) @ self.values[:, : start + length]
            class Model(nn.Module):
                def forward(self, tokens, start: int):
                    length = tokens.shape[1]
                    mask = None
                    if length > 1:
                        mask = torch.full((length, length), float("-inf"), device=tokens.device)
                        mask = torch.triu(mask, diagonal=1)
                    x = self.embed(tokens) + self.places[start : start + length]
                    return self.head(self.attention(x, start, mask))
            model = Model().cuda()
            """,
            after="""
            import torch
            from torch import nn
            class Attention(nn.Module):
                def __init__(self, length, width):
                    super().__init__()
                    self.qkv = nn.Linear(width, 3 * width)
                    self.keys = torch.zeros(1, length, width).to("{device}")
                    self.values = torch.zeros(1, length, width).to("{device}")
                def forward(self, x, start: torch.Tensor, mask):
                    length = x.shape[1]
                    q, k, v = self.qkv(x).chunk(3, -1)
                    at = start + torch.arange(length, device=self.keys.device)
                    self.keys[:, at] = k
                    self.values[:, at] = v
                    scores = q @ self.keys.mT
                    if mask is not None:
                        scores = scores + mask
                    later = torch.arange(self.keys.shape[1], device=self.keys.device) > at[:, None]
                    scores = scores.masked_fill(later, -torch.inf)
                    return scores.softmax(-1) @ self.values
            class Model(nn.Module):
                def forward(self, tokens, start: torch.Tensor):
                    length = tokens.shape[1]
                    mask = None
                    at = start + torch.arange(length, device=self.places.device)
                    x = self.embed(tokens) + self.places[at]
                    return self.head(self.attention(x, start, mask))
            model = Model().to("{device}")
            """,
            unsafe=True,
        ),
        Example(
            """
            import torch
            class Attention(torch.nn.Module):
                def __init__(self, length, width):
                    super().__init__()
                    self.keys = torch.zeros(1, length, width).cuda()
                def forward(self, x, start):
                    self.keys[:, start : start + 1] = x
                    scores = x @ self.keys[:, : start + 1].mT
                    return scores.softmax(-1) @ self.values
            model = Model(Attention(64, 16)).cuda()
            with torch.no_grad():
                for at in range(1, 64):
                    logits = model(tokens[:, at - 1 : at], at - 1)
                    tokens[:, at] = logits[:, -1].argmax(-1)
            """,
            after="""
            import torch
            class Attention(torch.nn.Module):
                def __init__(self, length, width):
                    super().__init__()
                    self.keys = torch.zeros(1, length, width).to("{device}")
                def forward(self, x, start):
                    at = start + torch.arange(1, device=self.keys.device)
                    self.keys[:, at] = x
                    scores = x @ self.keys.mT
                    later = torch.arange(self.keys.shape[1], device=self.keys.device) > at[-1]
                    scores = scores.masked_fill(later, -torch.inf)
                    return scores.softmax(-1) @ self.values
            model = Model(Attention(64, 16)).to("{device}")
            with torch.no_grad():
                for at in range(1, 64):
                    position = torch.tensor(at - 1, device=tokens.device)
                    logits = model(tokens[:, at - 1 : at], position)
                    tokens[:, at] = logits[:, -1].argmax(-1)
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                class Attention(torch.nn.Module):
                    def __init__(self, length, width):
                        super().__init__()
                        self.keys = torch.zeros(1, length, width).to("{device}")
                    def forward(self, x, start):
                        at = start + torch.arange(1, device=self.keys.device)
                        self.keys[:, at] = x
                        scores = x @ self.keys.mT
                        later = torch.arange(self.keys.shape[1], device=self.keys.device) > at[-1]
                        scores = scores.masked_fill(later, -torch.inf)
                        return scores.softmax(-1) @ self.values
                model = Model(Attention(64, 16)).to("{device}")
                with torch.no_grad():
                    for at in range(1, 64):
                        position = torch.tensor(at - 1, device=tokens.device)
                        logits = model(tokens[:, [at - 1]], position)
                        tokens[:, [at]] = logits[:, -1].argmax(-1).unsqueeze(1)
                        torch_xla.sync()
                """
            },
            unsafe=True,
        ),
        Example(
            """
            import torch
            class Attention(torch.nn.Module):
                def __init__(self, length, width):
                    super().__init__()
                    self.keys = torch.zeros(1, length, width)
                def forward(self, x, start):
                    self.keys[:, start : start + 1] = x
                    return torch.relu(x @ self.keys[:, : start + 1].mT)
            """,
            unsafe=True,
        ),
        Example(
            """
            import torch
            class Attention(torch.nn.Module):
                def forward(self, x, keys):
                    keys = torch.cat([keys, x], 1)
                    return (x @ keys.mT).softmax(-1), keys
            """,
            unsafe=True,
        ),
    ),
)

_WHY = (
    "each position needs a program: if it is a tensor, one program serves all; the tokens "
    "are the same if no other file gives the model a mask or calls its parts"
)


@CACHE.on("cache", "written")
def written(ctx: Context, found: Construct) -> Decision:
    passes = kv_passes(ctx.names, ctx.names.tree)
    edits = [edit for made in passes for edit in _edits(ctx, made)]
    masks = [made.mask for made in passes if made.mask is not None]
    return Rewrite(edits, ctx.code.torch()[1], note=_WHY, works=True, drops=masks)


def _edits(ctx: Context, made: ForwardPass) -> list[Edit]:
    torch = ctx.code.torch()[0]
    edits: list[Edit] = []
    if made.at:
        at = free_name(made.function, "at", "positions", "cache_positions")
        base = ast.unparse(made.at[0].node.value)
        count = f"{torch}.arange({ast.unparse(made.length)}, device={base}.device)"
        line = f"{at} = {made.start.arg} + {count}"
        edits.append(Insert(ctx.names.tree, made.first, [line], before=True))
        edits += [_with(part.node, part.place, ast.Name(at, ast.Load())) for part in made.at]
        edits += [_with(part.node, part.place, None) for part in made.until]
        if made.attention is not None:
            edits += _hiding(ctx, made, made.attention, at)
    if made.mask is not None:
        edits.append(Delete(made.mask))
    note = made.start.annotation
    if isinstance(note, ast.Name) and note.id == "int":
        edits.append(Replace(note, _tensor(ctx, torch)))
    return edits


def _hiding(ctx: Context, made: ForwardPass, attention: Attention, at: str) -> list[Edit]:
    """Positions after the last one get no weight."""
    torch = ctx.code.torch()[0]
    cache = ast.unparse(attention.cache.node.value)
    places = f"{torch}.arange({cache}.shape[{attention.cache.place}], device={cache}.device)"
    last = f"{at}[:, None]" if attention.is_causal else f"{at}[-1]"
    call, scores = attention.weights, attention.scores
    if scores:
        later = free_name(made.function, "later", "behind")
        lines = [f"{later} = {places} > {last}",
                 f"{scores} = {scores}.masked_fill({later}, -{torch}.inf)"]  # fmt: skip
        statement = ctx.names.statement(call)
        return [Insert(ctx.names.tree, statement, lines, before=True)]
    seen = f"{places} <= {last}" if attention.is_causal else f"({places} <= {last})[None]"
    if len(call.args) == 4:
        return [Replace(call.args[3], seen)]
    return [EditCall(call, put={"attn_mask": seen})]


def _with(node: ast.Subscript, place: int, key: ast.expr | None) -> Replace:
    """The same with another key, or with the whole dimension."""
    return Replace(node, with_key_of(node, place, key), {"x": node.value})


def _tensor(ctx: Context, torch: str) -> str:
    bound = ctx.names.top.bindings.get("Tensor", ())
    imported = bool(bound) and all(b.qualname == "torch.Tensor" for b in bound)
    return "Tensor" if imported else f"{torch}.Tensor"


# ---- around a model ------------------------------------------------------------------------------


@CACHE.on("cache", "position")
def position(ctx: Context, found: Construct) -> Decision:
    """`model(x[:, begin:end], begin)` in a loop."""
    assert isinstance(found.node, ast.Subscript)
    told = window(ctx.training.hot, found.node)
    assert told is not None
    (number,) = told.numbers
    torch, requires = ctx.code.torch()
    tokens, statement = dotted(found.node.value), ctx.names.statement(found.node)
    if (
        tokens is None
        or statement is None
        or not ctx.values.order.may_come_first(number, statement)
    ):
        return Keep("works as it stands")
    name = free_name(ctx.names.function(found.node) or ctx.names.tree, "start", "position")
    line = f"{name} = {torch}.tensor({ast.unparse(number)}, device={tokens}.device)"
    edits: list[Edit] = [
        Insert(ctx.names.tree, statement, [line], before=True),
        Replace(number, name),
    ]
    if ctx.api.step_boundary is not None:
        places = ast.parse(told.positions.replace("torch.", f"{torch}."), mode="eval").body
        edits.append(_with(found.node, 1, places))
        for node, place in told.beside():
            edits += _beside(ctx, node, place)
    return Rewrite(edits, requires, note=_WHY, works=True)


def _beside(ctx: Context, node: ast.Subscript, place: int) -> list[Edit]:
    """`x[:, end] = token`: a list is sent as data, where a number would be part of the program."""
    chosen = keys(node)
    if len(chosen) == 1 and not ctx.training.hot.is_tensor(node.value):
        return []
    listed = _with(node, place, ast.List([chosen[place]], ast.Load()))
    statement = ctx.names.parent(node)
    if isinstance(node.ctx, ast.Load):
        return [Replace(node, f"{listed.template}.squeeze({place})", listed.holes)]
    match statement:
        case ast.Assign([target], ast.Call(ast.Attribute(value, "squeeze"), [ast.Constant(gone)])):
            if target is node and gone == place:
                return [listed, Replace(statement.value, "{value}", {"value": value})]
        case ast.Assign([target], value) if target is node and ctx.training.hot.is_tensor(value):
            return [listed, Replace(value, f"{{value}}.unsqueeze({place})", {"value": value})]
    return []
