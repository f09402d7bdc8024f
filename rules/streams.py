"""Streams and CUDA graphs, which a TPU does not have."""

import ast

from migrator.analysis.values.kinds import Kind
from migrator.construct import Construct
from migrator.diagnostics import Effort
from migrator.edits import EditCall, Replace
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule

STREAM = Rule(
    code="CUD003",
    name="cuda-stream",
    summary="CUDA streams have no counterpart: XLA orders and overlaps work itself",
    why="""A stream is a queue of work; CUDA code uses several to overlap transfers and
computation. A program on a TPU is one queue, in which the compiler overlaps them. Removing a
stream automatically could change what a class around it does (a prefetcher, for example), so
remove streams by hand; usually a plain loader that prefetches replaces them. Streams under a
check for CUDA that is false on a TPU never run there, and stay.""",
    effort=Effort.HOURS,
    for_cuda=True,
    for_overlap=True,
    examples=(
        Example(
            """
            import torch
            s = torch.cuda.Stream()
            """,
        ),
        Example(
            """
            import torch
            s = torch.cuda.Stream() if torch.cuda.is_available() else None
            """,
        ),
    ),
)
GRAPH = Rule(
    code="CUD004",
    name="cuda-graph",
    summary="CUDA graphs have no counterpart: XLA compiles whole programs",
    why="""XLA compiles the whole step, which gives what a CUDA graph is for: no launch cost per
kernel. Remove capture and replay, and call the function itself.""",
    effort=Effort.HOURS,
    for_cuda=True,
    examples=(
        Example(
            """
            import torch
            g = torch.cuda.CUDAGraph()
            """,
        ),
    ),
)
_STREAMS = (
    "Stream", "ExternalStream", "stream", "current_stream", "default_stream", "set_stream",
    "StreamContext", "get_stream_from_external",
)  # fmt: skip
_GRAPHS = (
    "CUDAGraph", "graph", "graphs.*", "make_graphed_callables", "graph_pool_handle",
)  # fmt: skip


@STREAM.on("name", *(f"torch.cuda.{n}" for n in _STREAMS), "torch.Stream")
def stream(ctx: Context, found: Construct) -> Decision:
    node = found.node
    call = ctx.names.call_of(node)
    if ctx.words.device_names:
        return _of_any(ctx, found)
    if call is not None and found.key.endswith(("current_stream", "default_stream")):
        use = ctx.parent(call)
        if isinstance(use, ast.Attribute) and use.attr == "synchronize":
            return counterpart_of_call(ctx, ctx.names.call_of(use), "synchronize")
        if isinstance(use, ast.Call) and isinstance(use.func, ast.Attribute) and use.args == [call]:
            if use.func.attr in ("record", "wait"):  # event.record(torch.cuda.current_stream())
                return Rewrite([EditCall(use, drop=[call])])
    return Report("streams have no counterpart; take them out, XLA overlaps the work itself")


def _of_any(ctx: Context, found: Construct) -> Decision:
    """Streams of any accelerator."""
    assert isinstance(found.node, ast.expr)
    if found.key == "torch.Stream":
        return Keep("a stream of any accelerator")
    if (renamed := ctx.words.renames.get(found.key)) is not None:
        return Rewrite([Replace(found.node, renamed.code)], renamed.requires)
    call = ctx.names.call_of(found.node)
    if found.key == "torch.cuda.stream" and call is not None and len(call.args) == 1:
        given = call.args[0]
        if ctx.flow.kind(given) & Kind.STREAM and isinstance(ctx.parent(call), ast.withitem):
            return Rewrite([Replace(call, "{stream}", {"stream": given})])
    return Report("a CUDA stream; torch.Stream is one of any accelerator, and a context manager")


def counterpart_of_call(ctx: Context, call: ast.Call | None, name: str) -> Decision:
    if call is None:
        return Report(f"{name} is passed on, not called")
    native, word = ctx.words.calls.get(name), ctx.runtime(name)
    if native is not None:
        return Rewrite([Replace(call, native.code)], native.requires)
    if word is None:
        return ctx.lacks(f"torch.cuda.{name}")
    return Rewrite([Replace(call, f"{word.code}()")], word.requires)


@GRAPH.on("name", *(f"torch.cuda.{n}" for n in _GRAPHS))
def graph(ctx: Context, found: Construct) -> Decision:
    return Report("CUDA graphs have no counterpart; call the function itself, XLA compiles it")
