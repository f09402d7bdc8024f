"""Advice on changing shapes: every new shape is a separate program."""

import ast
import re

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Rule,
    Safety,
    advice,
    argument,
    dotted,
)
from migrator.rule_api.python import own_nodes
from migrator.rule_api.training import masked_assignment

_RECOMPILATION = "https://docs.pytorch.org/xla/release/r2.8/perf/recompilation.html"
_DYNAMIC = "https://docs.pytorch.org/xla/release/r2.8/learn/dynamic_shape.html"

_MODEL = (
    "import torch\n"
    "from torch import nn\n"
    "\n"
    "model = Net().cuda()\n"
    "\n"
    "\n"
    "class Net(nn.Module):\n"
    "    def forward(self, x):\n"
)


DATA_DEPENDENT = Rule(
    code="ADV001",
    name="data-dependent-shape",
    summary="a result whose shape depends on values keeps a model from being compiled as a whole",
    safety=Safety.DISPLAY_ONLY,
    why="""A TPU program has fixed shapes. How many elements a mask selects is only known after
running, so torchax runs the model operator by operator, and torch_xla waits for the values and
compiles again for each new shape.

This concerns `x[mask]`, `nonzero`, `torch.where` with one argument, `masked_select`, `unique`,
`nms`, and `repeat_interleave` with a tensor of repeats.

`torch.where` with a fill value has a fixed shape: instead of summing a selection, sum with zeros
elsewhere. So has writing through a mask (`x[mask] = 0`).

There is advice for forward passes, loops that train or call a model, and functions called there:
code that runs once compiles once.""",
    examples=(
        Example.moved(_MODEL + "        loss = self.loss(x)\n        return loss[x > 0].mean()\n"),
        Example.moved(
            _MODEL + "        loss = self.loss(x)\n        chosen = x > 0\n"
            "        return torch.where(chosen, loss, 0.0).sum() / chosen.sum()\n"
        ),
        Example.moved(
            """
            import torch
            from torch import nn

            model = Net().cuda()


            class Net(nn.Module):
                def __init__(self, table):
                    super().__init__()
                    self.register_buffer("rows", torch.nonzero(table))  # once
            """
        ),
        Example.moved(
            """
            import torch
            from torch import nn

            model = Net().cuda()


            class Net(nn.Module):
                def forward(self, x):
                    return x.repeat_interleave(self.heads, dim=1)  # a number
            """
        ),
    ),
    references=(_RECOMPILATION, _DYNAMIC),
)

GROWING = Rule(
    code="ADV002",
    name="growing-shape",
    summary="a tensor that grows in each iteration has a new shape each time",
    safety=Safety.DISPLAY_ONLY,
    why="""Each length needs its own program: torch_xla compiles it, and torchax runs the model
operator by operator, because no length comes twice.

Allocate the full length once, and write at a position that is a tensor (with a Python number, each
position would need a program). Models with causal attention ignore what comes after it; others need
a mask. The same works for a cache of keys and values. Pad inputs to a few lengths. Results that are
only collected go into a list, joined once after the loop.""",
    examples=(
        Example.moved(
            "import torch\n\nmodel = Net().cuda()\nfor _ in range(new_tokens):\n"
            "    new = model(tokens)[:, -1].argmax(-1, keepdim=True)\n"
            "    tokens = torch.cat([tokens, new], dim=1)\n"
        ),
        Example.moved(
            "import torch\n\nmodel = Net().cuda()\n"
            "at = torch.tensor([tokens.shape[1]], device=tokens.device)\n"
            "tokens = torch.nn.functional.pad(tokens, (0, new_tokens))\n"
            "for _ in range(new_tokens):\n"
            "    new = model(tokens).index_select(1, at - 1).argmax(-1)\n"
            "    tokens.index_copy_(1, at, new)\n    at = at + 1\n"
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            outputs = []
            for x in batches:
                outputs.append(model(x))
            outputs = torch.cat(outputs)
            """
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            for a, b in batches:
                a = torch.cat([a, b], dim=1)  # begins anew in each iteration
                y = model(a)
            """
        ),
    ),
    references=(_RECOMPILATION,),
)

# ---- data-dependent shapes -----------------------------------------------------------------------

_SELECTS = "the shape depends on values, so it can't be compiled with the code around it: "
_WHERE = advice(_SELECTS + "use torch.where with a fill value, or pad to a fixed size (topk)")
_POSITIONS = advice(
    "each number of positions is another shape, which is compiled again: compute the loss "
    'everywhere (reduction="none"), and write torch.where(mask, loss, 0).sum() / mask.sum()'
)
_BOXES = advice(
    _SELECTS + "keep a fixed number of boxes (topk) with a mask, or do this on the CPU, "
    "after the model"
)
_REPEATS = advice(
    _SELECTS + "give output_size, with the lengths padded to a fixed sum, or index with "
    "torch.searchsorted"
)


@DATA_DEPENDENT.on("advice", "nonzero()", "argwhere()", "masked_select()", "unique()",
                   "unique_consecutive()", node=ast.Call)  # fmt: skip
def selecting(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    return _WHERE if _is_of_tensor(ctx, call) and ctx.training.hot.is_hot(call) else None


def _is_of_tensor(ctx: Context, call: ast.Call) -> bool:
    """`torch.f(x)` or `x.f()` with a tensor on the device."""
    name = ctx.names.qualified(call.func)
    if name is not None:
        values = call.args[:1] if name.startswith("torch.") else []
    else:
        values = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return any(ctx.training.hot.may_be_tensor(v) or ctx.training.hot.is_mask(v) for v in values)


@DATA_DEPENDENT.on("advice", "where()", node=ast.Call)
def where(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if len(call.args) != 1 or call.keywords or ctx.names.qualified(call.func) != "torch.where":
        return None
    return selecting(ctx, found)


@DATA_DEPENDENT.on("advice", "nms()", "batched_nms()", node=ast.Call)
def boxes(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    name = ctx.names.qualified(call.func) or ""
    if not name.startswith("torchvision.ops.") or not call.args:
        return None
    return (
        _BOXES
        if ctx.training.hot.may_be_tensor(call.args[0]) and ctx.training.hot.is_hot(call)
        else None
    )


@DATA_DEPENDENT.on("advice", "repeat_interleave()", node=ast.Call)
def repeats(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    of_torch = ctx.names.qualified(call.func) == "torch.repeat_interleave"
    times = argument(call, 1 if of_torch else 0, "repeats")
    if times is None or argument(call, None, "output_size") is not None:
        return None
    return _REPEATS if ctx.training.hot.is_tensor(times) and ctx.training.hot.is_hot(call) else None


@DATA_DEPENDENT.on("advice", "Subscript", node=ast.Subscript)
def selected(ctx: Context, found: Construct, node: ast.Subscript) -> Decision | None:
    if not isinstance(node.ctx, ast.Load):
        return None
    if _is_of_positions(ctx, node):
        return (
            _POSITIONS
            if ctx.training.hot.is_tensor(node.value) and ctx.training.hot.is_hot(node)
            else None
        )
    keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if not any(isinstance(key, _MASKS) and ctx.training.hot.is_mask(key) for key in keys):
        return None
    statement = ctx.names.parent(node)
    if isinstance(statement, ast.Assign) and masked_assignment(ctx.names, ctx.flow, statement):
        return None  # TEN003 rewrites it
    return _static_form(ctx, node) if ctx.training.hot.is_hot(node) else None


def _is_of_positions(ctx: Context, node: ast.Subscript) -> bool:
    """`logits[rows]`, with `rows = np.where(labels > 0)`: NumPy finds them on the CPU."""
    found = ctx.names.only_value(node.slice)
    if not isinstance(found, ast.Call) or len(found.args) != 1:
        return False
    return ctx.names.qualified(found.func) in _FINDING


_FINDING = ("numpy.where", "numpy.nonzero", "numpy.flatnonzero", "numpy.argwhere")


def _static_form(ctx: Context, node: ast.Subscript) -> Decision:
    """What to write instead: the sum or the mean of what a mask selects has a fixed shape."""
    method = ctx.names.parent(node)
    if isinstance(node.slice, ast.Tuple) or not isinstance(method, ast.Attribute):
        return _WHERE
    call, mask = ctx.names.call_of(method), ctx.source.code(node.slice)
    if call is None or call.args or call.keywords or method.attr not in ("sum", "mean"):
        return _WHERE
    same = f"torch.where({mask}, {ctx.source.code(node.value)}, 0).sum()"
    count = mask if isinstance(node.slice, ast.Name) else f"({mask})"
    if method.attr == "mean":
        same += f" / {count}.sum()"
    return advice(
        f"{_SELECTS}{same} is the same, if the mask has the shape of what it selects from"
    )


_MASKS = (ast.Compare, ast.UnaryOp, ast.BinOp, ast.Call, ast.Name)


# ---- growing shapes ------------------------------------------------------------------------------

_NEW_LENGTH = "each length is a new shape, which is compiled again or runs operator by operator: "
_INPUT = advice(
    _NEW_LENGTH + "allocate the full length once, write at the position, and mask the rest"
)
_COLLECTED = advice(_NEW_LENGTH + "collect in a list, and join once after the loop")
_CACHE = re.compile(r"past|prev|cache", re.I)
_SDPA = "torch.nn.functional.scaled_dot_product_attention"
_KEYS = re.compile(r"(?:^|_)(?:k|v|kv|keys?|values?)(?:$|_)", re.I)


@GROWING.on("advice", "cat()", "concat()", "concatenate()", "hstack()", "vstack()", node=ast.Call)
def joined(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if not (ctx.names.qualified(call.func) or "").startswith("torch.") or not call.args:
        return None
    parts = call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else []
    if len(parts) < 2 or any(map(ctx.training.hot.is_on_host, parts)):
        return None
    if ctx.training.hot.in_pass(call) or _in_hook(ctx, call):
        return (
            _cached(ctx, call, *parts) if len(parts) == 2 and _is_cache(ctx, call, *parts) else None
        )
    statement = ctx.names.statement(call)
    loop = ctx.training.hot.loop(call)
    if loop is None or not isinstance(statement, ast.Assign) or statement.value is not call:
        return None
    grown = dotted(statement.targets[0])
    if grown is None or grown not in map(dotted, parts):
        return None
    if ctx.training.hot.in_some_rounds(call, loop) or _starts_anew(loop, grown, statement):
        return None
    return _INPUT if _is_given(ctx, loop, grown) else _COLLECTED


def _in_hook(ctx: Context, node: ast.AST) -> bool:
    """Whether a node is in a hook that runs after a module's forward pass."""
    function = getattr(ctx.names.function(node), "name", None)
    return function is not None and any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "register_forward_hook"
        and call.args
        and dotted(call.args[0]) == function
        for call in ctx.names.all(ast.Call)
    )


def _is_cache(ctx: Context, call: ast.Call, past: ast.expr, new: ast.expr) -> bool:
    """`self.cache_k = torch.cat([self.cache_k, k])`, `k = torch.cat([past[0], k])`"""
    held = past.value if isinstance(past, ast.Subscript) else past
    if not _CACHE.search((dotted(held) or "").rpartition(".")[2]):
        return False
    match ctx.names.statement(call):
        case ast.Assign(targets=[target]) if ast.unparse(target) == ast.unparse(past):
            return True
    return any(_KEYS.search((dotted(e) or "").rpartition(".")[2]) for e in (past, new))


def _cached(ctx: Context, call: ast.Call, past: ast.expr, new: ast.expr) -> Decision:
    dim = argument(call, 1, "dim", "axis")
    along = "0" if dim is None else ast.unparse(dim)
    write = f"{ast.unparse(past)}.index_copy({along}, at, {ast.unparse(new)})"
    function = ctx.names.function(call)
    fused = any(ctx.names.qualified(n) == _SDPA for n in ast.walk(function or ctx.names.tree))
    if fused:
        seen = "torch.arange(key.shape[-2], device=key.device) <= at[:, None]"
        hide = f"attn_mask={seen}instead of is_causal"
    else:
        places = "torch.arange(scores.shape[-1], device=scores.device)"
        hide = f"scores.masked_fill({places} > at[:, None], -torch.inf)"
    return advice(
        f"{_NEW_LENGTH}allocate the full length once, write by {write}, with the positions of the "
        f"new tokens in `at`, a tensor, and mask what comes after them by {hide}"
    )


def _starts_anew(loop: ast.For | ast.While, name: str, grown: ast.stmt) -> bool:
    """Whether each iteration first assigns another value to the name."""
    inside = [loop.target, *loop.body] if isinstance(loop, ast.For) else loop.body
    return any(
        isinstance(n, ast.Name | ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and dotted(n) == name
        for part in inside
        if part is not grown
        for n in ast.walk(part)
        if not (isinstance(grown, ast.Assign) and n in grown.targets)
    )


def _is_given(ctx: Context, loop: ast.For | ast.While, name: str) -> bool:
    """Whether a model gets a value, or something computed from it in the loop."""
    names = {name}
    for node in own_nodes(loop.body):
        if isinstance(node, ast.Assign) and any(dotted(n) in names for n in ast.walk(node.value)):
            if isinstance(node.targets[0], ast.Name) and not _calls_model(ctx, node.value):
                names.add(node.targets[0].id)
    return any(
        dotted(n) in names
        for node in own_nodes(loop.body)
        if isinstance(node, ast.Call) and ctx.training.hot.is_model(node.func)
        for value in [*node.args, *(k.value for k in node.keywords)]
        for n in ast.walk(value)
    )


def _calls_model(ctx: Context, node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Call) and ctx.training.hot.is_model(n.func) for n in ast.walk(node)
    )
