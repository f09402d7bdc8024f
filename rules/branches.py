"""Branches on values of tensors, which a program compiled as a whole can't make."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Keep,
    Replace,
    Rewrite,
    Rule,
    Unwrap,
    argument,
)
from migrator.rule_api.training import CHECK_IN_MODEL, is_checked_later, only_checks

FAMILY = Family("TEN", "Values of tensors", 80)

BRANCH = Rule(
    code="TEN001",
    name="branch-on-values",
    summary="a forward pass that branches on values becomes one without a branch",
    why="""`if torch.all(x == 0)` waits for the device to read one value, and the program around
it can't be compiled as a whole. If the branch replaces a mask that hides nothing or everything,
`torch.where` makes the same choice. Other branches stay, with advice.""",
    examples=(
        Example(
            """
            import torch
            from torch import nn


            class Net(nn.Module):
                def forward(self, x):
                    mask = torch.ones(x.shape, dtype=torch.bool)
                    if torch.all(x == 0):  # nothing there
                        mask = torch.zeros_like(mask)
                    return mask
            """,
            after="""
            import torch
            from torch import nn


            class Net(nn.Module):
                def forward(self, x):
                    mask = torch.ones(x.shape, dtype=torch.bool)
                    # nothing there
                    mask = torch.where(torch.all(x == 0), torch.zeros_like(mask), mask)
                    return mask
            """,
        ),
        Example(
            """
            import torch
            from torch import nn


            class Net(nn.Module):
                def forward(self, x):
                    if torch.any(x > 1):
                        x = self.rescale(x)
                    return x
            """,
        ),
        Example(
            """
            import torch
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    scale = torch.ones(x.shape)
                    if torch.all(x == 0):  # torch.where would give it zeros as gradients
                        scale = torch.zeros_like(scale)
                    return x * scale
            """,
            says={6: "right, and slow"},
        ),
        Example(
            """
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    if x.shape[0] == 0:  # a shape is known without waiting
                        x = x.new_zeros(1)
                    return x
            """,
        ),
        Example(
            """
            import torch
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    mask = torch.ones(x.shape, dtype=torch.bool)
                    self.mask = mask  # torch.where would make a copy of it
                    if torch.all(x == 0):
                        mask = torch.zeros_like(mask)
                    return mask
            """,
            says={7: "right, and slow"},
        ),
    ),
)

_ADVICE = (
    "waits for the device to read a value, so the model can't be compiled as a whole: use "
    "torch.where"
)
_ALIKE = ("torch.zeros_like", "torch.ones_like")


@BRANCH.on("branch", "values")
def branch(ctx: Context, found: Construct) -> Decision:
    match found.node:
        case (
            ast.If(
                test=test,
                body=[ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value)],
                orelse=[],
            ) as node
        ) if ctx.names.qualified(value.func) in _ALIKE and len(value.args) == 1:
            like = value.args[0]
            same = isinstance(like, ast.Name) and like.id == name and not value.keywords
            if same and isinstance(test, ast.Call) and _is_mask(ctx, node, name):
                if not _may_be_a_copy(ctx, node, like):
                    return Keep("right, and slow", advice=_ADVICE)
                spelled, requires = ctx.code.module("torch")
                chosen = f"{spelled}.where({{test}}, {ctx.source.code(value)}, {name})"
                edit = Replace(value, chosen, {"test": test})
                return Rewrite([edit, Unwrap(node)], requires)
    if ctx.api.holds_steps and is_checked_later(ctx.names, found.node):
        return Keep("right: it is checked when its step is computed")
    checks = only_checks(ctx.names, found.node)
    return Keep("right, and slow", advice=CHECK_IN_MODEL if checks else _ADVICE)


def _may_be_a_copy(ctx: Context, branch: ast.If, mask: ast.expr) -> bool:
    """Whether nobody can tell a mask from a copy of it, which torch.where always makes."""
    function, order = ctx.names.function(branch), ctx.values.order
    if isinstance(mask, ast.Name) and order.is_alone(mask):
        return True
    return function is not None and order.may_swap(order.contents(mask), function.body)


def _is_mask(ctx: Context, branch: ast.If, name: str) -> bool:
    """Whether ``name`` is a tensor of truth values, by the statements in front of ``branch``.

    A tensor with gradients would get zeros where the branch leaves it without any.
    """
    block = ctx.names.block(branch)
    for statement in reversed(block[: block.index(branch)]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                if not isinstance(value, ast.Call):
                    return False
                dtype = argument(value, None, "dtype")
                return dtype is not None and ctx.names.qualified(dtype) == "torch.bool"
        if any(isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
               for n in ast.walk(statement)):  # fmt: skip
            return False
    return False
