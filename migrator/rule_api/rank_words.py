"""What takes the place of ranks and of the wrappers of their models."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Devices,
    EditCall,
    Replace,
    Rewrite,
    Snippet,
)
from migrator.rule_api.python import is_only_named

CONVERT_BY_APEX = "apex.parallel.convert_syncbn_model"


def is_asked_for(ctx: Context, found: Construct) -> bool:
    """`isinstance(model, DistributedDataParallel)`"""
    return isinstance(found.node, ast.expr) and is_only_named(ctx.names, found.node)


def rank_words(ctx: Context) -> Devices | None:
    """The target's words for a program with ranks."""
    return ctx.api.devices if ctx.distributed.ranks else None


def in_one_process(ctx: Context) -> Devices | None:
    """The same if one process replaces all ranks."""
    words = rank_words(ctx)
    return words if not ctx.api.launches else None


def wrapped(
    ctx: Context, found: Construct, word: Snippet, note: str = "", gone: tuple[str, ...] = ()
) -> Decision:
    """The target's wrapper of a model, without these keywords, or with only the model."""
    assert isinstance(found.node, ast.expr)
    call = ctx.names.call_of(found.node)
    if call is None:
        return Rewrite([Replace(found.node, word.code)], word.requires)
    others: list[ast.expr | ast.keyword] = [
        k for k in call.keywords if (k.arg in gone if gone else k.arg != "module")
    ]
    others += call.args[1:]
    return Rewrite([EditCall(call, function=word.code, drop=others)], word.requires, note)
