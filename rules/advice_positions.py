"""Advice on caches of keys and values that a program writes at a Python number."""

from __future__ import annotations

import ast
import copy

from migrator.rule_api import Construct, Context, Decision, Example, Rule, Safety, advice, dotted
from migrator.rule_api.training import keys, window, with_key

_BEGIN = (
    "import torch\nfrom torch import nn\n\nmodel = Net().cuda()\n\n\n"
    "class Net(nn.Module):\n    def forward(self, x, start):\n        length = x.shape[1]\n"
    "        q, k, v = self.qkv(x).chunk(3, -1)\n"
)
_LOOP = "\n\nfor at in range(tokens.shape[1], total):\n"

POSITION = Rule(
    code="ADV012",
    name="number-as-position",
    summary="a cache written and read at a Python number needs a program for each position",
    safety=Safety.DISPLAY_ONLY,
    why="""`cache[:, start : start + n]` needs a program for each `start` that is a Python number,
and `cache[:, : start + n]` has a new shape each time. So torchax runs the model operator by
operator, and torch_xla compiles for each token.

If the position is a tensor, one program serves all: write the cache at it, read the cache at full
length, and mask what comes after. A score of minus infinity has a weight of exactly zero, whatever
the cache holds there. On torch_xla a list, as in `tokens[:, [at]]`, is a tensor of positions; so is
`torch.arange` on the CPU.

`--unsafe` makes this change in the forms that TOK002 knows; elsewhere the source doesn't show that
a mask covers everything that is read.""",
    examples=(
        Example.moved(
            f"{_BEGIN}"
            "        self.keys[:, start : start + length] = k\n"
            "        self.values[:, start : start + length] = v\n"
            "        scores = q @ self.keys[:, : start + length].mT\n"
            "        return scores.softmax(-1) @ self.values[:, : start + length]\n"
            f"{_LOOP}    logits = model(tokens[:, at - 1 : at], at - 1)\n"
        ),
        Example.moved(
            f"{_BEGIN}"
            "        at = start + torch.arange(length, device=x.device)\n"
            "        self.keys[:, at] = k\n"
            "        self.values[:, at] = v\n"
            "        later = torch.arange(self.keys.shape[1], device=x.device) > at[:, None]\n"
            "        scores = (q @ self.keys.mT).masked_fill(later, -torch.inf)\n"
            "        return scores.softmax(-1) @ self.values\n"
            f"{_LOOP}    start = torch.tensor(at - 1, device=tokens.device)\n"
            "    logits = model(tokens[:, [at - 1]], start)\n"
        ),
        Example.moved(
            """
            from torch import nn

            model = Net().cuda()


            class Net(nn.Module):
                def forward(self, x):
                    length = x.shape[1]
                    return x + self.places[:, :length]  # of the shape alone
            """
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            for at in range(0, total, size):
                logits = model(encode(texts[at : at + size]))  # of a list
            """
        ),
    ),
    references=("https://docs.pytorch.org/xla/release/r2.8/perf/recompilation.html",),
)

_ANEW = "needs a program for each position: "


# ---- in a model ----------------------------------------------------------------------------------


@POSITION.on("advice", "Subscript", node=ast.Subscript)
def cached(ctx: Context, found: Construct, node: ast.Subscript) -> Decision | None:
    """`self.keys[:, start : start + n]`, if a forward pass gets `start`."""
    function = ctx.names.function(node)
    if not isinstance(node.value, ast.Attribute) or not isinstance(function, ast.FunctionDef):
        return None
    if not ctx.training.hot.in_pass(node):
        return None
    for place, key in enumerate(keys(node)):
        match key:
            case ast.Slice(lower, ast.BinOp(one, ast.Add(), other) as upper, None):
                pass
            case _:
                continue
        given = _positions(ctx, function)
        if not any((dotted(n) or "-") in given for n in (one, other)):
            continue
        if lower is None:
            whole = ast.unparse(with_key(node, place, None))
            end = ast.unparse(upper)
            return advice(
                f"has another length at each position: read {whole}, and mask what comes after it, "
                "for one token by scores.masked_fill(torch.arange(scores.shape[-1], "
                f"device=scores.device) >= {end}, -torch.inf)"
            )
        if ast.dump(lower) not in (ast.dump(one), ast.dump(other)):
            continue
        count = other if ast.dump(one) == ast.dump(lower) else one
        device = f"{ast.unparse(node.value)}.device"
        places = f"{ast.unparse(lower)} + torch.arange({ast.unparse(count)}, device={device})"
        at = ast.unparse(with_key(node, place, _parsed(places)))
        verb = "read" if isinstance(node.ctx, ast.Load) else "write"
        return advice(f"{_ANEW}{verb} {at}, with {ast.unparse(lower)} a tensor")
    return None


@POSITION.on("advice", "arange()", node=ast.Call)
def counted(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    """`torch.arange(self.seen, self.seen + n)`, if the model counts its tokens."""
    function = ctx.names.function(call)
    if not isinstance(function, ast.FunctionDef) or not ctx.training.hot.in_pass(call):
        return None
    match call.args:
        case [begin, ast.BinOp(one, ast.Add(), count)] if dotted(begin) == dotted(one):
            pass
        case _:
            return None
    if (dotted(begin) or "-") not in _positions(ctx, function):
        return None
    places = copy.copy(call)
    places.args = [count]
    name = ast.unparse(begin)
    return advice(f"{_ANEW}write {name} + {ast.unparse(places)}, with {name} a tensor")


def _positions(ctx: Context, function: ast.FunctionDef) -> set[str]:
    """Parameters and attributes with which a model counts positions."""
    owner = ctx.names.enclosing_class(function)
    counted = [n.target for n in ast.walk(owner or function) if isinstance(n, ast.AugAssign)]
    attributes = {dotted(n) or "" for n in counted if isinstance(n, ast.Attribute)}
    return {parameter.arg for parameter in function.args.args[1:]} | attributes


# ---- around a model ------------------------------------------------------------------------------


@POSITION.on("advice", "Subscript", node=ast.Subscript)
def given(ctx: Context, found: Construct, node: ast.Subscript) -> Decision | None:
    """`model(x[:, begin:end], begin)` in a loop."""
    told = window(ctx.training.hot, node)
    if told is None or not (told.numbers or ctx.api.step_boundary):
        return None  # if operators run one by one, a slice alone is one program
    call = copy.deepcopy(told.call)
    for n, value in enumerate(told.call.args):
        if value in told.numbers:
            device = f"{ast.unparse(node.value)}.device"
            call.args[n] = _parsed(f"torch.tensor({ast.unparse(value)}, device={device})")
        elif value is node:
            call.args[n] = with_key(node, 1, _parsed(told.positions))
    return advice(f"{_ANEW}give positions that are tensors: {ast.unparse(call)}")


@POSITION.on("advice", "Subscript", node=ast.Subscript)
def beside(ctx: Context, found: Construct, node: ast.Subscript) -> Decision | None:
    """`x[:, end] = token` in such a loop, if operators are recorded."""
    loop = ctx.training.hot.loop(node) if ctx.api.step_boundary else None
    if loop is None:
        return None
    told = [
        made
        for other in ast.walk(loop)
        if isinstance(other, ast.Subscript)
        and (made := window(ctx.training.hot, other)) is not None
    ]
    place = next((n for made in told for part, n in made.beside() if part is node), None)
    if place is None or (len(keys(node)) == 1 and not ctx.training.hot.may_be_tensor(node.value)):
        return None
    key = ast.List([keys(node)[place]], ast.Load())
    listed = ast.unparse(with_key(node, place, key))
    statement = ctx.names.parent(node)
    if isinstance(node.ctx, ast.Load):
        return advice(f"{_ANEW}read {listed}.squeeze({place})")
    if isinstance(statement, ast.Assign):
        value = ast.unparse(ast.Attribute(statement.value, "unsqueeze", ast.Load()))
        return advice(f"{_ANEW}write {listed} = {value}({place})")
    return None


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
