"""GPU-only operations in a program that also runs on other devices: they are guarded."""

import ast
import re

from migrator.rule_api import (
    RUNTIME,
    Context,
    Decision,
    Edit,
    Keep,
    Report,
    Rewrite,
    Snippet,
    Wrap,
)

# Functions of torch.cuda that only have an effect on a GPU.
HOUSEKEEPING = (
    "empty_cache", "ipc_collect", "init", "set_device", "set_per_process_memory_fraction",
    "set_sync_debug_mode", "reset_accumulated_memory_stats", "reset_accumulated_host_memory_stats",
    "reset_peak_host_memory_stats", "reset_max_memory_cached", "nvtx.range_push", "nvtx.range_pop",
    "nvtx.mark", "profiler.start", "profiler.stop", "memory._record_memory_history",
    "_record_memory_history", "_sleep", "_lazy_init",
)  # fmt: skip
_ALONE = "only for GPUs, and checks for one first"


def behind_question(ctx: Context, node: ast.AST) -> Decision:
    """`if torch.cuda.is_available():` above a statement."""
    asked, statement = ctx.api.on_gpu, ctx.names.statement(node)
    assert asked is not None
    if statement is None or _is_asked(ctx, statement):
        return Keep(_ALONE)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return Report(f"is only for GPUs: check `{asked.code}` first")
    if statement.value.func is not node:
        return Report(f"is only for GPUs: check `{asked.code}` first, in a statement of its own")
    return Rewrite([Wrap(statement, [statement], f"if {asked.code}:")], asked.requires)


# Functions of torch.accelerator, by their torch.cuda names, that raise an error without one.
_RAISING = ("synchronize", "reset_peak_memory_stats", "reset_max_memory_allocated")
_ASKS = re.compile("accelerator|available|cuda|device|gpu|tpu")


def question_above(ctx: Context, node: ast.expr, name: str) -> list[Edit]:
    """A test above a statement that has none, so that the program also runs on the CPU."""
    asked, call = ctx.api.renames.get("torch.cuda.is_available"), ctx.names.call_of(node)
    if asked is None or name not in _RAISING or call is None or not ctx.names.is_statement(call):
        return []
    statement = ctx.names.statement(call)
    assert statement is not None
    tests = (a.test for a in ctx.names.ancestors(node) if isinstance(a, ast.If))
    if any(_ASKS.search(ctx.source.code(test)) for test in tests):
        return []
    return [Wrap(statement, [statement], f"if {asked.code}():")]


def not_on_tpu(ctx: Context, node: ast.AST) -> Decision:
    """A process with one TPU has no device to choose."""
    call = ctx.names.call_of(node)
    if call is None or not ctx.names.is_statement(call):
        return Report("a process has one TPU, and no other can be chosen")
    index = call.args[0] if call.args else None
    if isinstance(index, ast.Constant) and index.value == 0:
        return Keep("the first device, which every process has")
    statement, tpu = ctx.names.statement(call), ctx.code.quoted(ctx.api.device, node)
    assert statement is not None
    block = ctx.names.parent(statement)
    if isinstance(block, ast.If) and f"!= {ast.unparse(ast.Constant(ctx.api.device))}" in (
        ast.unparse(block.test)
    ):
        return Keep("not reached on a TPU")
    header = f"if {ctx.code.device_string(node)} != {tpu}:"
    return Rewrite([Wrap(statement, [statement], header)])


def guarded(ctx: Context, question: ast.Call) -> Keep | None:
    """A test for a GPU that only decides about GPU-only code."""
    block = ctx.names.parent(question)
    if isinstance(block, ast.IfExp) and is_chosen(ctx, block):
        return Keep(_ALONE)
    if not isinstance(block, ast.If) or not _stays(ctx, block):
        return None
    return Keep(_ALONE, leaves=[block])


def is_chosen(ctx: Context, choice: ast.IfExp) -> bool:
    """`DataParallel(model) if torch.cuda.is_available() else model`"""
    asked = ctx.api.on_gpu
    return (
        asked is not None
        and ctx.source.code(choice.test) == asked.code
        and isinstance(choice.body, ast.Call)
        and (ctx.names.qualified(choice.body.func) or "").endswith("nn.DataParallel")
    )


def _stays(ctx: Context, block: ast.If) -> bool:
    asked = ctx.api.on_gpu
    if asked is None or block.orelse or ctx.source.code(block.test) != asked.code:
        return False
    return all(_is_one(ctx, statement) for statement in block.body)


def _is_one(ctx: Context, statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="record_stream"))):
            return True
        case ast.Expr(value=ast.Call(func=func)):
            name = ctx.names.qualified(func) or ""
            return name.removeprefix("torch.cuda.") in HOUSEKEEPING and name not in (
                ctx.api.renames
            )
        case ast.Assign(value=ast.Call(func=func)):
            return (ctx.names.qualified(func) or "").endswith("nn.DataParallel")
    return False


def _is_asked(ctx: Context, statement: ast.stmt) -> bool:
    block = ctx.names.parent(statement)
    return isinstance(block, ast.If) and statement in block.body and _stays(ctx, block)


def gpu_question(ctx: Context) -> Snippet:
    """The test for whether a portable program runs on a GPU."""
    return ctx.api.on_gpu or Snippet(f"{RUNTIME}.is_cuda()", (RUNTIME,))


def asks_for_gpu(ctx: Context, value: ast.expr) -> bool:
    """Whether a portable program's expression already tests for a GPU."""
    compares = any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Eq)
        and any(isinstance(c, ast.Constant) and c.value == "cuda" for c in part.comparators)
        for part in ([*value.values] if isinstance(value, ast.BoolOp) else [value])
    )
    return gpu_question(ctx).code in ctx.source.code(value) or (
        compares and ctx.api.on_gpu is not None
    )
