"""Ranks of a program that chooses its device when it starts, with torch's own functions."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Insert,
    Keep,
    Report,
    Rewrite,
    Snippet,
    argument,
)
from migrator.rule_api.distributed import WRAPPER
from migrator.rule_api.python import is_only_named


def of_device(ctx: Context, back_end: Snippet) -> str:
    """Code for the back end of the device that the program chooses."""
    spelled, _ = ctx.code.module("torch.distributed")
    code = back_end.code.replace("{torch.distributed}", spelled)
    return code.replace("{device}", ctx.code.device())


def is_of_device(ctx: Context, back_end: ast.expr) -> bool:
    """Whether the program asks torch for the back end itself."""
    value = ctx.names.only_value(back_end)
    name = ctx.names.qualified(value.func) if isinstance(value, ast.Call) else None
    words = ctx.api.devices
    return (
        words is not None
        and words.back_end is not None
        and name == "torch.distributed.get_default_backend_for_device"
    )


def own_wrapper(ctx: Context, found: Construct) -> Decision:
    """Torch's own wrapper without a device index: a process has one device, or has chosen it."""
    call = ctx.names.call_of(found.node)
    assert isinstance(found.node, ast.expr)
    if call is None or is_only_named(ctx.names, found.node):
        return Keep("torch's own, which works there")
    if found.key != WRAPPER:
        return Report("this older FSDP was never run on the target: use `fully_shard`")
    gone: list[ast.expr | ast.keyword] = [
        k for k in call.keywords if k.arg in ("device_ids", "output_device")
    ]
    gone += call.args[1:3]
    return Rewrite([EditCall(call, drop=gone)]) if gone else Keep("torch's own")


def with_environment(ctx: Context, call: ast.Call, word: Snippet) -> Decision:
    """Settings that a TPU's processes share are made before they start."""
    statement, name = ctx.names.statement(call), word.code.rpartition(".")[2]
    if name in ctx.names.by_attribute:
        return Keep("starts a process for each device")
    if statement is None or not ctx.values.order.may_come_first(call, statement):
        return Report(f"put it on a line of its own, and {word.code} above it")
    count = argument(call, 2, "nprocs")
    known = isinstance(count, ast.Name | ast.Constant)
    given = f"nproc_per_node={ctx.source.code(count)}" if known and count is not None else ""
    device, tpu = ctx.code.device_string(call), ctx.code.quoted(ctx.api.device, call)
    text = f"if {device} == {tpu}:\n    {word.code}({given})"
    return Rewrite([Insert(ctx.names.tree, statement, [text], before=True)], word.requires)
