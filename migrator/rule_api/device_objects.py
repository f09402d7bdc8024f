"""The target's device as an object."""

import ast

from migrator.rule_api import (
    Context,
    Word,
)


def device_variable_at(ctx: Context, node: ast.expr) -> str | None:
    """The variable for the device, unless this expression is assigned to it or returned."""
    if not ctx.words.device_names:
        return None
    binds = isinstance(
        ctx.names.parent(node), ast.Assign | ast.AnnAssign | ast.Return | ast.NamedExpr
    )
    return None if binds else ctx.code.device(node)


def device_object_word(ctx: Context, near: ast.AST) -> Word:
    """The target's device object, spelled out."""
    torch, requires = ctx.code.torch()
    own = ctx.words.device_object
    if own is not None:
        code = device_variable_at(ctx, near) if isinstance(near, ast.expr) else None
        return Word(code or own.code, own.requires)
    return Word(f"{torch}.device({ctx.code.device_string(near)})", requires)
