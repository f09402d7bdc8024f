"""Streams and CUDA graphs, which a TPU does not have."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    EditCall,
    Effort,
    Example,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    Safety,
    Unwrap,
)

STREAM = Rule(
    code="CUD003",
    name="cuda-stream",
    summary="CUDA streams have no counterpart: XLA orders and overlaps work itself",
    why="""A stream is a queue of work; several overlap transfers and computation. A program on a
TPU is one queue, in which the compiler overlaps them. A stream that is only entered by `with` and
waited for, as in a prefetcher, is removed: the rest runs in the same order, and reads its batches
ahead as before. Take out others by hand. Streams under a check for CUDA that is false on a TPU
stay.""",
    effort=Effort.HOURS,
    for_cuda=True,
    for_overlap=True,
    examples=(
        Example(
            """
            import torch
            s = torch.cuda.Stream()
            """,
            says={2: "streams have no counterpart"},
        ),
        Example(
            """
            import torch
            s = torch.cuda.Stream() if torch.cuda.is_available() else None
            """,
        ),
        Example(
            """
            import torch


            class Prefetcher:
                def __init__(self, loader):
                    self.loader = iter(loader)
                    self.stream = torch.cuda.Stream()
                    self.preload()

                def preload(self):
                    self.batch = next(self.loader, None)
                    with torch.cuda.stream(self.stream):
                        self.batch = prepared(self.batch)

                def next(self):
                    torch.cuda.current_stream().wait_stream(self.stream)
                    batch = self.batch
                    self.preload()
                    return batch
            """,
            after="""
            import torch


            class Prefetcher:
                def __init__(self, loader):
                    self.loader = iter(loader)
                    self.preload()

                def preload(self):
                    self.batch = next(self.loader, None)
                    self.batch = prepared(self.batch)

                def next(self):
                    batch = self.batch
                    self.preload()
                    return batch
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
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    for_cuda=True,
    examples=(
        Example(
            """
            import torch
            g = torch.cuda.CUDAGraph()
            """,
            says={2: "CUDA graphs have no counterpart"},
        ),
        Example(
            """
            import torch
            g = torch.cuda.CUDAGraph() if torch.cuda.is_available() else None
            """,
            says={2: "does not run on a TPU"},
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
    if ctx.api.device_names:
        return _of_any(ctx, found)
    if call is not None and found.key.endswith(("current_stream", "default_stream")):
        use = ctx.names.parent(call)
        if isinstance(use, ast.Attribute) and use.attr == "synchronize":
            return counterpart_of_call(ctx, ctx.names.call_of(use), "synchronize")
        if isinstance(use, ast.Call) and isinstance(use.func, ast.Attribute) and use.args == [call]:
            if use.func.attr in ("record", "wait"):  # event.record(torch.cuda.current_stream())
                return Rewrite([EditCall(use, drop=[call])])
    if call is not None and not ctx.target.portable and (edits := _taken_out(ctx, call)):
        waits = [edit.node for edit in edits if isinstance(edit, Delete)]
        return Rewrite(edits, note="its work runs in the same order", drops=waits)
    return Report("streams have no counterpart; take them out, XLA overlaps the work itself")


def _taken_out(ctx: Context, call: ast.Call) -> list[Edit]:
    """Edits that remove a stream with all uses; none if it is used for more than order."""
    statement = ctx.names.statement(call)
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
            if value is not call or not _is_bound_once(ctx, target):
                return []
        case _:
            return []
    edits = [_without(ctx, use) for use in ctx.names.loads(target)]
    if not edits or None in edits:
        return []
    return [Delete(statement), *(edit for edit in edits if edit is not None)]


def _is_bound_once(ctx: Context, target: ast.Name | ast.Attribute) -> bool:
    """Whether no other statement in the file sets the name, or an attribute of that name."""
    if isinstance(target, ast.Name):
        return len(ctx.names.scope_of(target).bindings.get(target.id, ())) == 1
    same = ctx.names.by_attribute.get(target.attr, ())
    texts = {ast.unparse(node.value) for node in same if not ctx.names.qualified(node)}
    stores = [node for node in same if not isinstance(node.ctx, ast.Load)]
    return stores == [target] and texts == {ast.unparse(target.value)}


def _without(ctx: Context, use: ast.expr) -> Edit | None:
    """`with torch.cuda.stream(s):`, `torch.cuda.current_stream().wait_stream(s)`, the reverse"""
    statement = ctx.names.statement(use)
    match ctx.names.parent(use), statement:
        case ast.Call(args=[_], keywords=[]) as call, ast.With(items=items) if (
            ctx.names.qualified(call.func) == "torch.cuda.stream"
        ):
            own = [item for item in items if item.context_expr is call]
            return Unwrap(statement, own) if own and own[0].optional_vars is None else None
        case (
            ast.Attribute(attr="wait_stream") | ast.Call(),
            ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(attr="wait_stream", value=one), args=[other], keywords=[]
                )
            ),
        ) if use in (one, other):
            waits = other if use is one else one
            return Delete(statement) if _is_current(ctx, waits) else None
    return None


def _is_current(ctx: Context, node: ast.expr) -> bool:
    names = ("torch.cuda.current_stream", "torch.cuda.default_stream")
    return isinstance(node, ast.Call) and ctx.names.qualified(node.func) in names


def _of_any(ctx: Context, found: Construct) -> Decision:
    """Streams of any accelerator."""
    assert isinstance(found.node, ast.expr)
    if found.key == "torch.Stream":
        return Keep("a stream of any accelerator")
    if (renamed := ctx.api.renames.get(found.key)) is not None:
        return Rewrite([Replace(found.node, renamed.code)], renamed.requires)
    call = ctx.names.call_of(found.node)
    if found.key == "torch.cuda.stream" and call is not None and len(call.args) == 1:
        given = call.args[0]
        if ctx.flow.kind(given) & Kind.STREAM and isinstance(ctx.names.parent(call), ast.withitem):
            return Rewrite([Replace(call, "{stream}", {"stream": given})])
    return Report("a CUDA stream; torch.Stream is one of any accelerator, and a context manager")


def counterpart_of_call(ctx: Context, call: ast.Call | None, name: str) -> Decision:
    if call is None:
        return Report(f"{name} is passed on, not called")
    native, word = ctx.api.calls.get(name), ctx.code.runtime(name)
    if native is not None:
        return Rewrite([Replace(call, native.code)], native.requires)
    if word is None:
        return ctx.code.lacks(f"torch.cuda.{name}")
    return Rewrite([Replace(call, f"{word.code}()")], word.requires)


@GRAPH.on("name", *(f"torch.cuda.{n}" for n in _GRAPHS))
def graph(ctx: Context, found: Construct) -> Decision:
    return Report("CUDA graphs have no counterpart; call the function itself, XLA compiles it")
