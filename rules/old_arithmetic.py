"""Arithmetic of integers, bytes and booleans that older versions of PyTorch did otherwise."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Replace,
    Report,
    Rewrite,
    Rule,
)
from migrator.rule_api.upgrade_templates import reason_to_keep

ARITHMETIC = Rule(
    code="UPG008",
    name="changed-arithmetic",
    summary="arithmetic of integers or masks that newer versions refuse, or do otherwise",
    why="""A comparison gives booleans since PyTorch 1.2, which can't be subtracted: `1 - mask` is
`~mask`. `~` of bytes inverts all their bits since then. `/` of integers rounded before PyTorch 1.5,
and gives fractions now, which are no index. In Python 3 `/` of sizes gives fractions, too, which
`view` and `reshape` refuse. What the source shows to be the same is rewritten. A `/` that is none
of these is reported in a file with names that only such old versions have; elsewhere it may be
meant as it is.""",
    references=("https://github.com/pytorch/pytorch/releases/tag/v1.2.0",
                "https://github.com/pytorch/pytorch/releases/tag/v1.5.0"),
    examples=(
        Example(
            """
            import torch
            mask = torch.zeros(4).cuda() > x
            y = x[1 - mask] * (1 - mask)
            z = (1 - mask) + mask
            """,
            after="""
            import torch
            mask = torch.zeros(4).to("{device}") > x
            y = x[~mask] * (~mask)
            z = (1 - mask) + mask
            """,
            says={4: "a comparison gives booleans since PyTorch 1.2"},
        ),
        Example(
            """
            import torch
            scores, best = x.cuda().view(-1).topk(5)
            rows = names[best / x.size(1)]
            """,
            after="""
            import torch
            scores, best = x.to("{device}").view(-1).topk(5)
            rows = names[best // x.size(1)]
            """,
        ),
        Example(
            """
            import torch
            halves = x.cuda().view(2, size / 2)
            """,
            after="""
            import torch
            halves = x.to("{device}").view(2, size // 2)
            """,
        ),
        Example(
            """
            import torch
            class Net(torch.nn.Module):
                def __init__(self, size, skip):
                    super().__init__()
                    self.skip = skip
                    self.parts = size / self.skip
                def forward(self, x):
                    return x.view(self.parts, self.skip)
            """,
            says={6: "a size must be a whole number"},
        ),
        Example(
            """
            import torch
            mask = torch.zeros(4) > x
            z = 1 - mask
            """,
            says={3: "a comparison gives booleans"},
        ),
        Example(
            """
            import torch
            scores, best = x.view(-1).topk(5)
            share = best / x.size(1)  # no index, and may be meant as it is
            """,
        ),
    ),
)  # fmt: skip
_SINCE = "of integers gives fractions since PyTorch 1.5"
_BOOLEANS = "a comparison gives booleans since PyTorch 1.2, and they have no minus"
_MASKED = ("masked_fill", "masked_fill_", "masked_select", "masked_scatter", "where")
_CASTS = ("float", "double", "half", "long", "int", "bool", "type_as", "type")


@ARITHMETIC.on("changed", "inverted mask", node=ast.BinOp)
def inverted(ctx: Context, found: Construct, node: ast.BinOp) -> Decision:
    """`1 - mask`: the same as `~mask` where it is a mask, or is taken for numbers at once."""
    if (kept := reason_to_keep(ctx, node, "torch.Tensor")) is not None:
        return kept
    match ctx.names.parent(node):
        case ast.Subscript() | ast.BinOp(op=ast.Mult()):
            same = True
        case ast.Attribute(attr=attr):
            same = attr in _CASTS
        case ast.Call(func=ast.Attribute(attr=attr)):
            same = attr in _MASKED
        case _:
            same = False
    if not same:
        return Report(f"{_BOOLEANS}: use ~ for a mask, or subtract .float() or .long()")
    return Rewrite([Replace(node, "~{mask}", {"mask": node.right})])


@ARITHMETIC.on("changed", "mask minus")
def minus(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torch.Tensor")
    return kept or Report(f"{_BOOLEANS}: subtract .float() or .long(), or use ^ of two masks")


@ARITHMETIC.on("changed", "inverted bytes")
def inverted_bytes(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torch.Tensor")
    return kept or Report("inverts every bit of bytes since PyTorch 1.2: a mask needs .bool()")


@ARITHMETIC.on("changed", "divided index", "divided size", node=ast.BinOp)
def divided_whole(ctx: Context, found: Construct, node: ast.BinOp) -> Decision:
    if (kept := reason_to_keep(ctx, node, "torch.Tensor")) is not None:
        return kept
    parts = {"of": node.left, "by": node.right}
    return Rewrite([Replace(node, "{of} // {by}", parts)])


@ARITHMETIC.on("changed", "named size")
def named_size(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torch.Tensor")
    return kept or Report("a size must be a whole number, and / gives fractions: use //")


@ARITHMETIC.on("changed", "division")
def divided(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torch.Tensor")
    return kept or Report(f"{_SINCE}, which are no index: use // if nothing is negative")


@ARITHMETIC.on("changed", "rounded division")
def rounded(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torch.Tensor")
    return kept or Report(
        f"{_SINCE}, which this file is older than: use // if it is meant to round"
    )
