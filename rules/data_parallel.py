"""nn.DataParallel: a model that is copied to each device."""

import ast

from migrator.analysis.ranks.vocabulary import COPIES as COPYING
from migrator.construct import Construct
from migrator.diagnostics import Effort
from migrator.edits import Wrap
from migrator.rule import Context, Decision, Example, Report, Rewrite, Rule

from .ranks import wrapped

COPIES = Rule(
    code="DST002",
    name="data-parallel",
    summary="nn.DataParallel splits each batch over the TPU's devices",
    why="""One process drives all devices. (On torch_xla this is SPMD, which set-up has to know
about.) Parameters are on all devices, each batch is split along its first dimension, and XLA
sums over devices. The source also works with whole batches, so batch size and learning rate
stay. The choice of GPUs is dropped: all devices take part. BatchNorm uses the statistics of the
whole batch, where nn.DataParallel uses those of each part.""",
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch.nn as nn
            model = nn.DataParallel(model, device_ids=[0, 1])
            """,
            after="""
            import torch.nn as nn
            import tpu_runtime
            model = tpu_runtime.DataParallel(model)
            """,
        ),
    ),
)


@COPIES.on("name", *COPYING)
def copies(ctx: Context, found: Construct) -> Decision | None:
    words = ctx.words.devices
    if words is None:
        return None
    if isinstance(ctx.parent(found.node), ast.ClassDef):
        return Report("a subclass splits batches and joins results in its own way")
    line = ctx.own_ranks.counts_copies
    if line is not None:
        return Report(
            f"line {line} computes with the number of GPUs, or adds their results; here the model "
            "returns one result of the whole batch"
        )
    if words.copies is None:
        return _on_gpus(ctx, found)
    sharded = words.sharded if ctx.options.shard == "fsdp" else None
    note = "BatchNorm uses the statistics of the whole batch"
    return wrapped(ctx, found, sharded or words.copies, note)


def _on_gpus(ctx: Context, found: Construct) -> Decision:
    """Copies are for several GPUs of one process; a process has only one TPU."""
    asked, call = ctx.words.on_gpu, ctx.names.call_of(found.node)
    statement = ctx.names.statement(found.node)
    if asked is None or call is None or "module" in ctx.names.by_attribute:
        return Report("a process has one TPU: remove it, or start ranks by torchrun")
    match statement:
        case ast.Assign(targets=[target], value=value) if value is call and call.args:
            if ast.unparse(target) == ast.unparse(call.args[0]):
                edit = Wrap(statement, [statement], f"if {asked.code}:")
                return Rewrite([edit], asked.requires, "a process has one TPU")
    return Report("a process has one TPU: remove it, or start ranks by torchrun")
