"""Text that a program generates token by token."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.rule_api import (
    AddParameter,
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Example,
    Family,
    Insert,
    Keep,
    Replace,
    ReplaceStatement,
    Rewrite,
    Rule,
    Safety,
    argument,
)
from migrator.rule_api.example_steps import with_step_end
from migrator.rule_api.generation import (
    CollectingLoop,
    TokenLoop,
    collecting_loop,
    is_returned,
    last_positions,
    token_loop,
)
from migrator.rule_api.python import StatementOrder, parameters
from migrator.rule_api.training import is_model

FAMILY = Family("TOK", "Generation", 75)

_BUFFERED = """
import torch
import tpu_runtime
model = GPT().to("{device}")
with torch.no_grad():
    tokens = tpu_runtime.TokenBuffer(text)
    for _ in range(new_tokens):
        context = tokens.window(block_size)
        logits = tokens.last(model(context))  # of the last token
        tokens.append(logits.argmax(-1, keepdim=True))
    text = tokens.tokens
"""
_IN_MODEL = """
import torch
import tpu_runtime
class GPT(torch.nn.Module):
    def forward(self, idx, targets=None, last=None):
        x = self.blocks(idx)
        return self.head(x[:, [-1], :] if last is None else x.index_select(1, last))

    @torch.no_grad()
    def generate(self, idx, count):
        tokens = tpu_runtime.TokenBuffer(idx)
        for _ in range(count):
            logits = self(tokens.window(self.size), last=tokens.position)
            logits = logits[:, -1, :]
            tokens.append(logits.argmax(-1, keepdim=True))
        idx = tokens.tokens
        return idx
model = GPT().to("{device}")
"""
_JOINED = """
import torch
model = GPT().to("{device}")
with torch.no_grad():
    logits = model(text, use_cache=True)
    collected = [text]
    for _ in range(new_tokens):
        token = logits[:, -1].argmax(-1, keepdim=True)
        collected.append(token)
        logits = model(token, use_cache=True)
    text = torch.cat(collected, dim=1)
"""
_WRITTEN = """
import torch
with torch.no_grad():
    for _ in range(new_tokens):
        token = model(text)[:, -1].argmax(-1, keepdim=True)
        text = torch.cat((text, token), dim=1)
    text[:, 0] = 0  # also of the text that was given, if there are no new tokens
"""
_ALL_PLACES = """
import torch
with torch.no_grad():
    for _ in range(new_tokens):
        token = model(text).mean(1).argmax(-1, keepdim=True)  # of all places
        text = torch.cat((text, token), dim=1)
"""


BUFFER = Rule(
    code="TOK001",
    name="token-buffer",
    summary="text that grows is kept in a buffer whose length is a power of two",
    why="""Each token makes the text longer, and each length has its own shape: torch_xla compiles a
program per length, and torchax runs the model operator by operator.

A buffer has few lengths: 64 tokens, then powers of two. The model gets it padded on the right, and
a tensor chooses the last token's place in its output, so the program stays the same. The model
computes up to twice as many positions; a cache of keys and values saves more.

The tokens are the same if the output at a position doesn't depend on later ones, as with causal
attention, but not with an encoder. The source can't show this, so the rewrite needs `--unsafe`;
`tpu-migrate verify` compares the results. A model that only keeps the last position is told that
position.

A loop whose model doesn't read the text, as with a cache, collects its tokens in a list and joins
them once.

The model must not write to the text, or keep it. Whatever else the loop does must be shown not to
change the text or the tokens, by any name; otherwise the loop stays.""",
    safety=Safety.UNSAFE,
    examples=(
        with_step_end(
            Example(
                """
            import torch
            model = GPT().cuda()
            with torch.no_grad():
                for _ in range(new_tokens):
                    context = text[:, -block_size:]
                    logits = model(context)[:, -1, :]  # of the last token
                    text = torch.cat((text, logits.argmax(-1, keepdim=True)), dim=1)
            """,
                after=_BUFFERED,
                unsafe=True,
            ),
            "tokens.append(logits.argmax(-1, keepdim=True))",
        ),
        with_step_end(
            Example(
                """
            import torch
            class GPT(torch.nn.Module):
                def forward(self, idx, targets=None):
                    x = self.blocks(idx)
                    return self.head(x[:, [-1], :])

                @torch.no_grad()
                def generate(self, idx, count):
                    for _ in range(count):
                        logits = self(idx if idx.size(1) <= self.size else idx[:, -self.size:])
                        logits = logits[:, -1, :]
                        idx = torch.cat((idx, logits.argmax(-1, keepdim=True)), dim=1)
                    return idx
            model = GPT().cuda()
            """,
                after=_IN_MODEL,
                unsafe=True,
            ),
            "tokens.append(logits.argmax(-1, keepdim=True))",
        ),
        with_step_end(
            Example(
                """
            import torch
            model = GPT().cuda()
            with torch.no_grad():
                logits = model(text, use_cache=True)
                for _ in range(new_tokens):
                    token = logits[:, -1].argmax(-1, keepdim=True)
                    text = torch.cat([text, token], dim=1)
                    logits = model(token, use_cache=True)
            """,
                after=_JOINED,
                unsafe=True,
            ),
            "logits = model(token, use_cache=True)",
        ),
        with_step_end(
            Example(
                _WRITTEN,
                unsafe=True,
                says={5: "may be changed by another name"},
            ),
            "text = torch.cat((text, token), dim=1)",
        ),
        with_step_end(
            Example(
                _ALL_PLACES,
                unsafe=True,
            ),
            "text = torch.cat((text, token), dim=1)",
        ),
        Example.moved(
            "import torch\nmodel = GPT().cuda()\nfor _ in range(new_tokens):\n"
            "    token = model(tokens)[:, -1].argmax(-1, keepdim=True)\n"
            "    tokens = torch.cat((tokens, token), dim=1)\n"
        ),
    ),
)

_WHY = (
    "each length is a new shape, which is compiled again or runs operator by operator: a buffer of "
    "a few lengths gives the same tokens if the model's output at a position doesn't "
    "depend on later ones, as with causal attention"
)
_COLLECTED = (
    "each length is a new shape, and a program of its own: nothing in the loop reads the "
    "joined text, so it can be joined once, after the loop"
)


@BUFFER.on("loop", "growing tokens")
def growing_tokens(ctx: Context, found: Construct) -> Decision:
    buffer = ctx.code.runtime("TokenBuffer")
    around = next(a for a in ctx.names.ancestors(found.node) if isinstance(a, ast.For | ast.While))
    loop = token_loop(ctx.names, ctx.flow, around)
    assert loop is not None
    choice = _choice(ctx, loop) if loop.limit is not None or not _counts_places(ctx) else None
    if buffer is None or choice is None or ctx.file.is_without_device:
        return Keep("right as it stands")
    if not _keeps_order(ctx, loop, header=True):
        return Keep(_CHANGED)
    name = _new(ctx, "tokens", "token_buffer")
    tree, text = ctx.names.tree, loop.name
    limit = "{limit}" if loop.limit is not None else ""
    holes = {"limit": loop.limit} if loop.limit is not None else {}
    edits = [
        Insert(tree, loop.loop, [f"{name} = {buffer.code}({text})"], before=True),
        Replace(loop.window, f"{name}.window({limit})", holes),
        *choice.edits(loop, name),
        ReplaceStatement(loop.joined, f"{name}.append({{token}})", {"token": loop.token}),
        Insert(tree, loop.loop, [f"{text} = {name}.tokens"]),
    ]
    return Rewrite(edits, buffer.requires, note=_WHY, works=True)


@BUFFER.on("loop", "collected tokens")
def collected_tokens(ctx: Context, found: Construct) -> Decision:
    """Nothing reads the text before it is complete: it is joined once."""
    around = next(a for a in ctx.names.ancestors(found.node) if isinstance(a, ast.For | ast.While))
    made = collecting_loop(ctx.names, ctx.flow, around)
    assert made is not None and isinstance(found.node, ast.Call)
    if not _keeps_order(ctx, made, header=False):
        return Keep(_CHANGED)
    tree, name = ctx.names.tree, _new(ctx, "collected", "collected_tokens")
    dim = argument(found.node, 1, "dim", "axis")
    assert dim is not None
    join = f"{ast.unparse(found.node.func)}({name}, dim={ast.unparse(dim)})"
    edits: list[Edit] = [
        Insert(tree, made.loop, [f"{name} = [{made.name}]"], before=True),
        ReplaceStatement(made.joined, f"{name}.append({{token}})", {"token": made.token}),
        Insert(tree, made.loop, [f"{made.name} = {join}"]),
    ]
    return Rewrite(edits, note=_COLLECTED, works=True)


_CHANGED = "the tokens may be changed by another name, before or after they are joined"


def _keeps_order(ctx: Context, made: TokenLoop | CollectingLoop, header: bool) -> bool:
    """Whether the tokens can be read when the loop is over (the text also before its header).

    That the model reads and keeps them only for itself is what --unsafe is for.
    """
    loop, text = made.loop, made.joined.value.args[0].elts[0]  # type: ignore[attr-defined]
    around = ctx.names.function(loop) or ctx.names.tree
    calls = [n for n in ast.walk(around) if isinstance(n, ast.Call) and is_model(ctx.flow, n.func)]
    known = {n.id for n in (text, made.token) if isinstance(n, ast.Name)}

    def is_tensor(node: ast.expr) -> bool:
        return ctx.training.hot.is_tensor(node) or (isinstance(node, ast.Name) and node.id in known)

    order = StatementOrder(ctx.names, ctx.values.effects, is_tensor, calls)
    runs: list[ast.AST] = [s for s in loop.body if s is not made.joined]
    if isinstance(loop, ast.While):
        runs.append(loop.test)
    elif header:
        runs.append(loop.iter)
    read = order.contents(text) if header else order.contents(text, made.token)
    return order.may_swap(read, runs) and not _is_written_after(ctx, loop, made.name)


def _is_written_after(ctx: Context, loop: ast.stmt, name: str) -> bool:
    """Whether the text is changed in place below a loop: after no rounds, that is what was given,
    and not a copy."""
    function = ctx.names.function(loop)
    for use in ctx.names.by_id.get(name, ()):
        if ctx.names.function(use) is function and use.lineno > (loop.end_lineno or 0):
            match ctx.names.parent(use):
                case ast.Subscript(ctx=ast.Store()) | ast.AugAssign():
                    return True
                case ast.Attribute(attr=method) if method.endswith("_"):
                    return True
    return False


def _counts_places(ctx: Context) -> bool:
    """Whether a model of the file counts positions, for which it may have a table.

    The table may be shorter than a buffer without limit: what torchax finds behind its end is NaN,
    which attention of weight zero passes on.
    """
    return any(
        isinstance(node, ast.Call)
        and ctx.names.qualified(node.func) == "torch.arange"
        and getattr(ctx.names.function(node), "name", "") == "forward"
        for node in ctx.names.order
    )


class _Choice:
    """The last position is selected from the model's result."""

    def edits(self, loop: TokenLoop, name: str) -> list[Edit]:
        return [Replace(loop.last, f"{name}.last({{outputs}})", {"outputs": loop.last.value})]


@dataclass(frozen=True)
class _ByModel(_Choice):
    """The model selects the last position itself, and gets its index."""

    forward: ast.FunctionDef
    kept: ast.Subscript  # x[:, [-1], :]
    parameter: str
    is_argument: bool

    def edits(self, loop: TokenLoop, name: str) -> list[Edit]:
        last = self.parameter
        chosen = f"{{kept}} if {last} is None else {{x}}.index_select(1, {last})"
        template = chosen if self.is_argument else f"({chosen})"
        return [
            AddParameter(self.forward, last, _optional(self.forward.args)),
            Replace(self.kept, template, {"kept": self.kept, "x": self.kept.value}),
            EditCall(loop.call, put={last: f"{name}.position"}),
        ]


def _choice(ctx: Context, loop: TokenLoop) -> _Choice | None:
    """How the last position is selected; None if that is unknown."""
    owner = ctx.names.enclosing_class(loop.call)
    match loop.call.func:
        case ast.Name(id="self") | ast.Attribute(value=ast.Name(id="self"), attr="forward"):
            pass
        case _:
            return _Choice()
    methods = [m for m in (owner.body if owner else ()) if isinstance(m, ast.FunctionDef)]
    forwards = [method for method in methods if method.name == "forward"]
    if owner is None or len(forwards) != 1:
        return _Choice()
    (forward,) = forwards
    kept = list(last_positions(forward))
    if not kept:
        return _Choice()
    a = forward.args
    if len(kept) != 1 or a.posonlyargs or a.vararg or a.kwonlyargs or a.kwarg or not a.args:
        return None
    if not isinstance(kept[0].value, ast.Name) or forward.decorator_list:
        return None
    if _is_overridden(ctx, owner) or not is_returned(ctx.names, kept[0], forward, loop.call):
        return None
    parent = ctx.names.parent(kept[0])
    is_argument = isinstance(parent, ast.Call | ast.Assign | ast.Return)
    return _ByModel(forward, kept[0], _new(ctx, "last", "last_position"), is_argument)


def _is_overridden(ctx: Context, owner: ast.ClassDef) -> bool:
    """Whether a call on `self` may reach another function, which lacks such an argument."""
    classes = [node for node in ast.walk(ctx.names.tree) if isinstance(node, ast.ClassDef)]
    below = [c for c in classes if any(ast.unparse(b) == owner.name for b in c.bases)]
    scripted = any(ctx.names.qualified(n) == "torch.jit.script" for n in ctx.names.order)
    called = any(isinstance(m, ast.FunctionDef) and m.name == "__call__" for m in owner.body)
    return scripted or bool(below) or called


def _optional(arguments: ast.arguments) -> str:
    """The file's annotation for a tensor that may be None, if it has one."""
    found = [
        ast.unparse(each.annotation)
        for each, default in parameters(arguments)
        if each.annotation is not None and default is not None and ast.unparse(default) == "None"
    ]
    return next((text for text in reversed(found) if "Tensor" in text), "")


def _new(ctx: Context, *names: str) -> str:
    """The first of these names that the file doesn't use."""
    return next((name for name in names if name not in ctx.names.bound), f"{names[-1]}_")
