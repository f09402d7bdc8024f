"""Other targets: how torch_xla starts processes and feeds devices."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    EditCall,
    Insert,
    Replace,
    Report,
    Rewrite,
    argument,
    dotted,
)
from migrator.rule_api.python import of_torch

from .gpu_code import CONVERTERS
from .torch_xla_names import GROUP, MP, PL, STARTS, is_constant


@CONVERTERS.on(*STARTS)
def _spawn(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """One process per device: like torch.multiprocessing, after which its spawn is modelled."""
    is_spawn = found.key.endswith("spawn")
    single = argument(call, 3, "debug_single_process") if not is_spawn else None
    if is_constant(argument(call, 2, "nprocs"), 1) or not is_constant(single, None, False):
        return Report("only one process: call the function itself, with 0 as its first argument")
    spawn, of_spawn = of_torch(ctx.names, "torch.multiprocessing.spawn")
    devices, of_devices = of_torch(ctx.names, "torch.cuda.device_count()")
    gone = ("nprocs", "start_method", "debug_single_process")
    drop: list[ast.expr | ast.keyword] = [k for k in call.keywords if k.arg in gone]
    drop += [x for i, x in enumerate(call.args) if i == 2 or i > (4 if is_spawn else 1)]
    edits: list[Edit] = [EditCall(call, function=spawn, drop=drop, put={"nprocs": devices})]
    requires = [*of_spawn, *of_devices]
    if not any(c.key == GROUP for c in ctx.constructs):
        name, of_group = of_torch(ctx.names, GROUP)
        statement = ctx.names.statement(call)
        if statement is None or not ctx.values.order.may_come_first(call, statement):
            return Report(f"put it on a line of its own, and {name} above it")
        line = f"{name}({ctx.code.quoted('nccl')})"
        edits.append(Insert(ctx.names.tree, statement, [line], before=True))
        requires += of_group
    return Rewrite(edits, requires)


@CONVERTERS.on(f"{MP}MpModelWrapper")
def _wrapper(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    model = argument(call, 0, "model")
    if model is None:
        return Report("the source doesn't show its arguments")
    return Rewrite([Replace(call, "{model}", {"model": model})])


@CONVERTERS.on(f"{MP}MpSerialExecutor")
def _executor(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """Its `run` calls a function; there is nothing to wait for."""
    edits: list[Edit] = []
    uses: list[ast.expr] = [*_uses(ctx, call)]
    for use in uses or [call]:
        method = ctx.names.parent(use)
        run = ctx.names.call_of(method) if isinstance(method, ast.Attribute) else None
        if run is None or len(run.args) != 1 or run.keywords:
            return Report("call the functions directly: a single process waits for nobody")
        function = "{function}" if dotted(run.args[0]) else "({function})"
        if isinstance(run.args[0], ast.Lambda) and not run.args[0].args.args:
            edits.append(Replace(run, "{value}", {"value": run.args[0].body}))
        else:
            edits.append(Replace(run, f"{function}()", {"function": run.args[0]}))
    statement = ctx.names.parent(call)
    assert isinstance(statement, ast.Assign)
    return Rewrite([Delete(statement), *edits])


@CONVERTERS.on(f"{PL}ParallelLoader", f"{PL}MpDeviceLoader")
def _loader(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    loader = argument(call, 0, "loader", "cpu_loader")
    target = ctx.api.device_loader
    if target is None:
        return Report("a portable program moves each batch itself: use .to(device)")
    if loader is None or any(k.arg in ("input_sharding", None) for k in call.keywords):
        return Report("its arguments can't be followed")
    word = f"{target.code}({{loader}})"
    holes = {"loader": loader}
    if found.key.endswith("MpDeviceLoader"):
        return Rewrite([Replace(call, word, holes)], target.requires)
    retrieved = _retrieved(ctx, call)
    if retrieved is not None:
        return Rewrite([Replace(retrieved, word, holes)], target.requires)
    edits: list[Edit] = [Replace(call, word, holes)]
    uses: list[ast.expr] = [*_uses(ctx, call)]
    for use in uses or [call]:
        retrieved = _retrieved(ctx, use)
        if retrieved is not None:
            edits.append(Replace(retrieved, "{name}", {"name": use}))
        elif not isinstance(ctx.names.parent(use), ast.Delete):
            return Report("its use cannot be followed; loop over the loader, and move batches "
                          "with .to(device)")  # fmt: skip
    return Rewrite(edits, target.requires)


def _retrieved(ctx: Context, loader: ast.expr) -> ast.Call | None:
    """`loader.per_device_loader(device)`"""
    method = ctx.names.parent(loader)
    if isinstance(method, ast.Attribute) and method.attr == "per_device_loader":
        return ctx.names.call_of(method)
    return None


def _uses(ctx: Context, value: ast.expr) -> list[ast.Name]:
    """Where a name is read that only refers to values like this one."""
    match ctx.names.parent(value):
        case ast.Assign(targets=[ast.Name() as target]):
            key = ctx.names.qualified(value.func) if isinstance(value, ast.Call) else None
            for binding in ctx.names.lookup(target):
                if isinstance(ctx.names.parent(binding.node), ast.Delete):
                    continue
                other = binding.value
                if not isinstance(other, ast.Call) or ctx.names.qualified(other.func) != key:
                    return []
            return list(ctx.names.uses(target.id, ctx.names.scope_of(target)))
    return []
