"""The target's device: as an object, and in place of an expression that names another."""

import ast

from migrator.rule_api import RUNTIME, Context, Kind, Replace, Rewrite, Snippet
from migrator.rule_api.devices import device_call, names_index


def device_variable_at(ctx: Context, node: ast.expr) -> str | None:
    """The variable for the device, unless this expression is assigned to it or returned."""
    if not ctx.api.device_names:
        return None
    binds = isinstance(
        ctx.names.parent(node), ast.Assign | ast.AnnAssign | ast.Return | ast.NamedExpr
    )
    return None if binds else ctx.code.device(node)


def device_object_word(ctx: Context, near: ast.AST) -> Snippet:
    """The target's device object, spelled out."""
    torch, requires = ctx.code.torch()
    own = ctx.api.device_object
    if own is not None:
        code = device_variable_at(ctx, near) if isinstance(near, ast.expr) else None
        return Snippet(code or own.code, own.requires)
    return Snippet(f"{torch}.device({ctx.code.device_string(near)})", requires)


def device_object(ctx: Context, call: ast.Call, near: ast.AST) -> Rewrite:
    """The edit that makes a `torch.device(…)` call name the target's device."""
    word = ctx.api.device_object
    if word is not None:
        return Rewrite([Replace(call, device_variable_at(ctx, call) or word.code)], word.requires)
    text = device_name(ctx, near)
    requires = _at_import(ctx, call)
    return Rewrite([Replace(call, f"{{function}}({text})", {"function": call.func})], requires)


def device_name(ctx: Context, near: ast.AST) -> str:
    """The name of the target's device, with an index if the file compares the one it had."""
    if isinstance(near, ast.expr) and keeps_index(ctx, near):
        return ctx.code.quoted(f"{ctx.api.device}:0", near)
    return ctx.code.device_string(near)


def keeps_index(ctx: Context, node: ast.expr) -> bool:
    return not ctx.target.portable and names_index(ctx.names, node) and ctx.code.compares_indices


def _at_import(ctx: Context, node: ast.AST) -> tuple[str, ...]:
    """A library module that names the device when it is imported must know the device by then."""
    runs_later = ctx.names.function(node) is not None or ctx.options.entry is not False
    needed = not runs_later and ctx.project is not None and ctx.target.runtime is not None
    return (RUNTIME,) if needed else ()


def device_value(ctx: Context, node: ast.expr, near: ast.AST) -> Rewrite:
    """The edit that replaces any kind of device expression by the target's device."""
    call = device_call(ctx.names, node)
    if call is not None:
        return device_object(ctx, call, near)
    if ctx.flow.kind(node) & Kind.DEVICE:
        word = device_object_word(ctx, near)
        return Rewrite([Replace(node, word.code)], [*word.requires, *_at_import(ctx, node)])
    return Rewrite([Replace(node, device_name(ctx, near))])
