"""Other targets, if ranks stay ranks: what torch_xla's processes do together."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Replace,
    Report,
    Rewrite,
    Wrap,
    argument,
)
from migrator.rule_api.python import of_torch

from .torch_xla_names import MP, STARTS, XM, XR, Converters, is_constant

_CONVERTERS = Converters()
# Collective operations, or shared state, in ways that no rewrite preserves.
_ADVICE = {
    f"{XM}reduce_gradients": "averages gradients; call {step} instead of both",
    f"{XM}broadcast_master_param": "broadcast each parameter and buffer from rank 0",
    f"{XM}mesh_reduce": "gather the values by torch.distributed.all_gather_object",
    f"{XM}add_step_closure": "call the function itself, after the step, on each rank",
    f"{MP}MpModelWrapper": "its processes share one model's first weights; seed each, or load them",
    f"{MP}MpSerialExecutor": "its processes take turns; wait by torch.distributed.barrier()",
    f"{XM}get_local_ordinal": 'ask for int(os.environ["LOCAL_RANK"])',
    f"{XR}local_ordinal": 'ask for int(os.environ["LOCAL_RANK"])',
}


def together(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    """The rewrite of a call in a program with ranks; None if it is that of a single process."""
    if found.key in _CONVERTERS:
        return _CONVERTERS[found.key](ctx, found, call)
    advice = _ADVICE.get(found.key)
    if advice is None:
        return None
    step = ctx.code.runtime("optimizer_step")
    return Report(advice.format(step=step.code if step else "an optimizer's step"))


@_CONVERTERS.on(*STARTS)
def _start(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    word, is_spawn = ctx.code.runtime("launch"), found.key.endswith("spawn")
    if word is None:
        return Report("starts processes: start them by torchrun, with DistributedDataParallel")
    single = argument(call, 3, "debug_single_process") if not is_spawn else None
    if is_constant(argument(call, 2, "nprocs"), 1) or not is_constant(single, None, False):
        return Report("only one process: call the function itself, with 0 as its first argument")
    if not ctx.names.is_statement(call) or not is_constant(argument(call, 3, "join"), None, True):
        return Report("its processes are not waited for")
    gone = ("nprocs", "start_method", "debug_single_process", "join", "daemon")
    drop: list[ast.expr | ast.keyword] = [k for k in call.keywords if k.arg in gone]
    return Rewrite(
        [EditCall(call, function=word.code, drop=[*drop, *call.args[2:]])], word.requires
    )


@_CONVERTERS.on(f"{XM}optimizer_step")
def _optimizer_step(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    word = ctx.code.runtime("optimizer_step")
    if word is None:
        return Report("averages gradients over processes: use DistributedDataParallel")
    if argument(call, 3, "groups") is not None or argument(call, 4, "pin_layout") is not None:
        return Report("gradients of some of the ranks only")
    optimizer, arguments = argument(call, 0, "optimizer"), argument(call, 2, "optimizer_args")
    if optimizer is None:
        return Report("the source doesn't show its arguments")
    holes: dict[str, ast.expr] = {"optimizer": optimizer}
    if arguments is not None:
        holes["arguments"] = arguments
    given = ", **{arguments}" if arguments is not None else ""
    return Rewrite([Replace(call, f"{word.code}({{optimizer}}{given})", holes)], word.requires)


# Arguments that choose another rank than 0, or that torch names differently.
_OTHERWISE = ("local", "global_master", "sync", "data", "file_or_path")


@_CONVERTERS.on(f"{XM}master_print", f"{XM}save")
def _by_the_first(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """Done only by rank 0."""
    statement = ctx.names.statement(call)
    if statement is None or not ctx.names.is_statement(call):
        return Report("only rank 0 does it: put it on a line of its own")
    if any(k.arg in _OTHERWISE for k in call.keywords):
        return Report("not done by rank 0 of all: ask for torch.distributed.get_rank() yourself")
    drop: list[ast.expr | ast.keyword]
    if found.key.endswith("save"):
        if not is_constant(argument(call, 2, "master_only"), None, True) or len(call.args) > 3:
            return Report("each rank writes the same file: give it a name for each")
        function, requires = of_torch(ctx.names, "torch.save")
        drop = [*call.args[2:], *call.keywords]
        edit = EditCall(call, function=function, drop=drop)
    else:
        function, requires = "print", ()
        file = argument(call, None, "fd")
        put = {"file": ctx.source.code(file)} if file is not None else {}
        drop = [k for k in call.keywords if k.arg == "fd"]
        edit = EditCall(call, function=function, drop=drop, put=put)
    rank, needed = of_torch(ctx.names, "torch.distributed.get_rank()")
    edits: list[Edit] = [edit, Wrap(statement, [statement], f"if {rank} == 0:")]
    return Rewrite(edits, (*requires, *needed))


@_CONVERTERS.on(f"{XM}rendezvous")
def _wait(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if not ctx.names.is_statement(call) or argument(call, 1, "payload") is not None:
        return Report("exchanges what it is given: torch.distributed.all_gather_object does so")
    word, requires = of_torch(ctx.names, "torch.distributed.barrier()")
    return Rewrite([Replace(call, word)], requires)


@_CONVERTERS.on(f"{XM}all_reduce")
def _all_reduce(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    kind, given = argument(call, 0, "reduce_type"), argument(call, 1, "inputs")
    sums = isinstance(kind, ast.Constant) and kind.value == "sum"
    sums |= kind is not None and ctx.names.qualified(kind) == f"{XM}REDUCE_SUM"
    match given:
        case ast.List(elts=[tensor]) if (
            sums and ctx.names.is_statement(call) and len(call.args) == 2
        ):
            if not call.keywords:
                word, requires = of_torch(ctx.names, "torch.distributed.all_reduce")
                return Rewrite([Replace(call, f"{word}({{tensor}})", {"tensor": tensor})], requires)
    return Report("torch.distributed.all_reduce works in place: reduce a copy on a line of its own")
