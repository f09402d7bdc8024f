"""Calls of torch.cuda: their counterparts, and how they go."""

import ast

from migrator.rule_api import (
    MIRRORED,
    RUNTIME,
    Construct,
    Context,
    Decision,
    Delete,
    Keep,
    Replace,
    Report,
    Rewrite,
    Unwrap,
)
from migrator.rule_api.gpu_only_code import behind_question, question_above
from migrator.rule_api.python import is_no_more_than, none_around
from migrator.rule_api.seeding import is_seeded, seeded
from migrator.rule_api.upgrades import missing


def counterpart(ctx: Context, node: ast.expr, name: str) -> Decision:
    """The target's spelling of a function that torch.cuda calls `name`."""
    call = ctx.names.call_of(node)
    if call is not None and name.startswith("manual_seed") and is_seeded(ctx, call):
        return Keep("torch.manual_seed, beside it, seeds every device")
    renamed = ctx.api.renames.get(f"torch.cuda.{name}")
    if renamed is not None and name.startswith("manual_seed"):
        return seeded(ctx, node, renamed)
    if renamed is not None:
        asked = question_above(ctx, node, name)
        return Rewrite([Replace(node, renamed.code), *asked], renamed.requires)
    word = ctx.api.calls.get(name)
    if word is not None and call is not None:
        first = call.args[0] if call.args else next((k.value for k in call.keywords), None)
        if "{0}" not in word.code:
            return Rewrite([Replace(call, word.code)], word.requires)
        if first is not None and not isinstance(first, ast.Starred):
            return Rewrite([Replace(call, word.code, {"0": first})], word.requires)
    if name not in MIRRORED:
        return Report(f"torch.cuda.{name} itself is passed on, not called")
    word = ctx.code.runtime(name)
    if word is None:
        return ctx.code.lacks(f"torch.cuda.{name}")
    return Rewrite([Replace(node, word.code)], word.requires)


def removal(ctx: Context, found: Construct) -> Decision:
    """Remove a call that does nothing on the target; a portable program asks the runtime."""
    assert isinstance(found.node, ast.expr)
    if (renamed := ctx.api.renames.get(found.key)) is not None:
        return Rewrite([Replace(found.node, renamed.code)], renamed.requires)
    if ctx.api.on_gpu is not None and found.key.startswith("torch.cuda."):
        return behind_question(ctx, found.node)
    if ctx.target.asks_runtime and found.key.startswith("torch.cuda."):
        return Rewrite([Replace(found.node, found.key.replace("torch.cuda", RUNTIME))])
    call = ctx.names.call_of(found.node)
    if call is None:
        return Report("is passed on, not called; it has nothing to do on a TPU")
    statement = ctx.names.statement(call)
    if isinstance(statement, ast.Expr) and is_no_more_than(
        call, statement.value, ctx.values.effects
    ):
        return Rewrite([Delete(statement)])
    return Rewrite([Replace(none_around(call, ctx.names, ctx.values.effects), "None")])


def unwrapped(ctx: Context, call: ast.Call | None, reason: str) -> Decision:
    """Remove a context manager from its `with`."""
    item = ctx.names.parent(call) if call is not None else None
    statement = ctx.names.parent(item) if isinstance(item, ast.withitem) else None
    if isinstance(item, ast.withitem) and isinstance(statement, ast.With | ast.AsyncWith):
        if item.optional_vars is None and not ctx.target.portable:
            return Rewrite([Unwrap(statement, [item])])
    return Report(reason)


def names_nothing(ctx: Context, found: Construct) -> bool:
    """`torch.cuda.cudnn_enabled = False`, where PyTorch has no such name, and nothing reads it."""
    if missing(found.key, ctx.target.environment.names) is None:
        return False
    name, statement = found.key.rpartition(".")[2], ctx.names.statement(found.node)
    plain = isinstance(statement, ast.Assign) and found.node in statement.targets
    uses = ctx.names.by_attribute.get(name, ())
    return plain and not any(isinstance(use.ctx, ast.Load) for use in uses)
