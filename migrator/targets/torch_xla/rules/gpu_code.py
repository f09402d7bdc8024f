"""Other targets: the GPU program that a torch_xla program corresponds to."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    EditCall,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    Unwrap,
    argument,
    dotted,
)
from migrator.rule_api.python import of_torch

from .gpu_ranks import together
from .torch_xla_names import GROUP, STARTS, XM, XR, Converters, is_at_home, is_constant

CONVERTED = Rule(
    code="XLA002",
    name="from-torch-xla",
    foreign=True,
    summary="a torch_xla program, read as the GPU program that it stands for",
    why="""For other targets than torch_xla, each torch_xla function is read as its GPU counterpart:
a device, an optimizer's step, torch.distributed, `torch.multiprocessing.spawn`. That program is
migrated like any other (with `--unsafe` if it trains with ranks, docs/several-devices.md). Calls
that only lazy tensors need (`mark_step`) are removed.

An import below `try` or `if`, or in a function, asks whether torch_xla is there; without it the
other branch runs, so both stay.""",
    examples=(
        Example(
            """
            import torch
            import torch_xla.core.xla_model as xm
            import torch_xla.distributed.parallel_loader as pl
            device = xm.xla_device()
            net.to(device)
            for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
                print(net(x))
            xm.save(net.state_dict(), path)
            """,
            after="""
            import torch
            import tpu_runtime
            device = torch.device("{device}")
            net.to(device)
            for x, y in tpu_runtime.DeviceLoader(loader):
                print(net(x))
            torch.save(net.state_dict(), path)
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                import torch_xla.core.xla_model as xm
                import torch_xla.distributed.parallel_loader as pl
                device = torch_xla.device()
                net.to(device)
                for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
                    print(net(x))
                xm.save(net.state_dict(), path)
                """
            },
        ),
        Example(
            """
            import torch
            try:
                import torch_xla.core.xla_model as xm
            except ImportError:
                xm = None
            device = xm.xla_device() if xm else torch.device('cpu')
            """,
            except_on={
                "torch_xla": """
                import torch
                try:
                    import torch_xla.core.xla_model as xm
                    import torch_xla
                except ImportError:
                    xm = None
                device = torch_xla.device() if xm else torch.device('cpu')
                """
            },
        ),
    ),
)


# ---- elsewhere: what it stands for ---------------------------------------------------------------

CONVERTERS = Converters()
# The same function with the same arguments.
_SAME = {
    "torch_xla.utils.checkpoint.checkpoint": "torch.utils.checkpoint.checkpoint",
    "torch_xla.amp.GradScaler": "torch.cuda.amp.GradScaler",
    "torch_xla.amp.syncfree.SGD": "torch.optim.SGD",
    "torch_xla.amp.syncfree.Adam": "torch.optim.Adam",
    "torch_xla.amp.syncfree.AdamW": "torch.optim.AdamW",
}
_CALLS = {  # without arguments
    **dict.fromkeys((f"{XM}xla_device", "torch_xla.device"), 'torch.device("cuda")'),
    **dict.fromkeys(
        ("torch_xla.device_count", f"{XR}global_runtime_device_count", f"{XR}local_device_count",
         f"{XR}global_device_count", f"{XR}addressable_device_count"),
        "torch.cuda.device_count()",
    ),
    f"{XM}wait_device_ops": "torch.cuda.synchronize()",
    f"{XM}xla_device_kind": "torch.cuda.get_device_name()",
}  # fmt: skip
_RANK = (f"{XM}get_ordinal", f"{XM}get_local_ordinal", f"{XR}global_ordinal", f"{XR}local_ordinal")
_WORLD = (f"{XM}xrt_world_size", f"{XR}world_size")
# Unnecessary in one process whose operations run in order.
_NOTHING = (f"{XM}broadcast_master_param", f"{XM}reduce_gradients", f"{XM}rendezvous",
            f"{XR}initialize_cache")  # fmt: skip
_ADVICE = {
    "torch_xla.debug.metrics": "counts what torch_xla compiles; TPU_RUNTIME_REPORT=1 lists this "
    "target's compilations",
    "torch_xla.utils.serialization": "has its own file format; use torch.save and torch.load, "
    "and convert older files where torch_xla is installed",
    f"{XM}get_memory_info": "use tpu_runtime.mem_get_info(), which gives bytes (free, total)",
    "torch_xla.debug.profiler": "profiles torch_xla; use jax.profiler",
    "torch_xla.distributed.spmd": "places tensors by hand; see `tpu-migrate explain SHD001`",
    f"{XM}xla_device_hw": "use tpu_runtime.get_device_name()",
    f"{XM}send_cpu_data_to_device": "use .to(device) for each tensor",
    "torch_xla.test": "belongs to torch_xla's own tests; remove it",
}


@CONVERTED.on("name", "torch_xla.*")
def elsewhere(ctx: Context, found: Construct) -> Decision | None:
    if is_at_home(ctx):
        return None
    assert isinstance(found.node, ast.expr)
    if ctx.names.ends_without(found.node):
        return Report("the program ends if torch_xla is missing; import it without a check")
    if ctx.names.is_question(found.node):
        return Keep("torch_xla is imported if it is there; otherwise the other branch runs")
    call = ctx.names.call_of(found.node)
    if found.key in _SAME:
        word, requires = of_torch(ctx.names, _SAME[found.key])
        return Rewrite([Replace(found.node, word)], requires)
    if call is not None and not any(isinstance(a, ast.Starred) for a in call.args):
        if found.key in _CALLS:
            word, requires = of_torch(ctx.names, _CALLS[found.key])
            word = word.replace('"cuda"', ctx.code.quoted("cuda", call))
            return Rewrite([Replace(call, word)], requires)
        decision = together(ctx, found, call) if _is_of_ranks(ctx) else None
        # This shows other files how a GPU program starts its ranks.
        as_gpu_program = (
            ctx.file.for_others and found.key in STARTS and isinstance(decision, Rewrite)
        )
        if decision is not None and not as_gpu_program:
            return decision
        if found.key in CONVERTERS:
            return CONVERTERS[found.key](ctx, found, call)
    for key, advice in _ADVICE.items():
        if found.key == key or found.key.startswith(f"{key}."):
            return Report(advice)
    return Report(f"{found.key} belongs to torch_xla, which {ctx.target.name} does without")


@CONVERTED.on("store", "torch_xla.*")
def replaced(ctx: Context, found: Construct) -> Decision:
    if is_at_home(ctx):
        return Keep("a part of torch_xla itself is replaced")
    return Report(f"the program replaces {found.key} itself")


@CONVERTED.on("star", "torch_xla*")
def star(ctx: Context, found: Construct) -> Decision:
    return Report("a star import does not show which names it brings; import them one by one")


def has_ranks(ctx: Context) -> bool:
    """Whether the file may belong to a program that starts one process per device."""
    if ctx.file.for_others:
        return True
    started = (*STARTS, GROUP)
    if any(c.kind == "name" and c.key in started for c in ctx.constructs):
        return True
    return ctx.project is not None and bool(ctx.project.files_with_ranks())


def _gone(ctx: Context, call: ast.Call) -> Decision:
    statement = ctx.names.parent(call)
    if isinstance(statement, ast.Expr):
        return Rewrite([Delete(statement)])
    return Report("what it returns is used; put it on a line of its own")


@CONVERTERS.on(f"{XM}mark_step", "torch_xla.sync")
def _sync(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if is_constant(argument(call, 0, "wait"), None, False):
        return _gone(ctx, call)
    word, requires = of_torch(ctx.names, "torch.cuda.synchronize()")
    return Rewrite([Replace(call, word)], requires)


@CONVERTERS.on("torch_xla.step")
def _step(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    item = ctx.names.parent(call)
    block = ctx.names.parent(item) if item is not None else None
    if isinstance(item, ast.withitem) and isinstance(block, ast.With) and not item.optional_vars:
        return Rewrite([Unwrap(block, [item])])
    return Report("steps are compiled without it")


@CONVERTERS.on(*_NOTHING)
def _nothing(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    return _gone(ctx, call)


def _is_of_ranks(ctx: Context) -> bool:
    """Whether there may be several processes, each with its own loss, if ranks stay."""
    return ctx.target.keeps_ranks and (has_ranks(ctx) or not ctx.file.is_entry)


@CONVERTERS.on(f"{XM}optimizer_step")
def _optimizer_step(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    optimizer = argument(call, 0, "optimizer")
    arguments = argument(call, 2, "optimizer_args")
    if argument(call, 3, "groups") is not None:
        return Report("gradients of some of the ranks only")
    if not isinstance(optimizer, ast.Name | ast.Attribute | ast.Subscript):
        return Report("give the optimizer a name")
    holes: dict[str, ast.expr] = {"optimizer": optimizer}
    if arguments is not None:
        holes["arguments"] = arguments
    given = "**{arguments}" if arguments is not None else ""
    return Rewrite([Replace(call, f"{{optimizer}}.step({given})", holes)])


@CONVERTERS.on(*_RANK, *_WORLD)
def _number(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    is_rank = found.key in _RANK
    if not has_ranks(ctx):
        return Rewrite([Replace(call, "0" if is_rank else "1")], note="one process, one device")
    name = "get_rank" if is_rank else "get_world_size"
    word, requires = of_torch(ctx.names, f"torch.distributed.{name}()")
    return Rewrite([Replace(call, word)], requires)


@CONVERTERS.on(f"{XM}is_master_ordinal")
def _is_master(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if has_ranks(ctx):
        word, requires = of_torch(ctx.names, "torch.distributed.get_rank() == 0")
        return Rewrite([Replace(call, word)], requires)
    block = ctx.names.parent(call)
    if isinstance(block, ast.If) and not block.orelse:
        above = ctx.names.parent(block)
        if not isinstance(above, ast.If) or above.orelse != [block]:
            return Rewrite([Unwrap(block)])
    return Rewrite([Replace(call, "True")])


@CONVERTERS.on(f"{XM}master_print")
def _print(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    drop = [k for k in call.keywords if k.arg in ("local", "fd")]
    file = argument(call, None, "fd")
    put = {"file": ctx.source.code(file)} if file is not None else {}
    return Rewrite([EditCall(call, function="print", drop=drop, put=put)])


@CONVERTERS.on(f"{XM}save")
def _save(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if any(k.arg in ("data", "file_or_path") for k in call.keywords):
        return Report("name the arguments of torch.save: obj and f")
    drop: list[ast.expr | ast.keyword] = [*call.args[2:], *call.keywords]
    word, requires = of_torch(ctx.names, "torch.save")
    return Rewrite([EditCall(call, function=word, drop=drop)], requires)


@CONVERTERS.on(f"{XM}mesh_reduce")
def _mesh_reduce(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    data, reduce = argument(call, 1, "data"), argument(call, 2, "reduce_fn")
    if data is None or reduce is None:
        return Report("the source doesn't show its arguments")
    if not ctx.values.order.may_swap(data, reduce):
        return Report("what it is given and its function act on each other: name one of them above")
    function = "{reduce}" if dotted(reduce) else "({reduce})"
    return Rewrite([Replace(call, f"{function}([{{data}}])", {"data": data, "reduce": reduce})])


@CONVERTERS.on(f"{XM}all_reduce")
def _all_reduce(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    given, scale = argument(call, 1, "inputs"), argument(call, 2, "scale")
    if given is None or argument(call, 3, "groups") is not None:
        return Report("its arguments can't be followed")
    if scale is not None and not _is_share(ctx, scale) and not is_constant(scale, 1, 1.0):
        return Report("scales what it sums; multiply on a line of its own")
    statement = ctx.names.parent(call)
    if isinstance(statement, ast.Expr):
        if scale is None and has_ranks(ctx):
            match given:
                case ast.List(elts=[tensor]):
                    word, requires = of_torch(ctx.names, "torch.distributed.all_reduce")
                    edit = Replace(call, f"{word}({{tensor}})", {"tensor": tensor})
                    return Rewrite([edit], requires)
        return Rewrite([Delete(statement)])
    if isinstance(given, ast.List):
        return Report("a list is reduced in place; put it on a line of its own")
    return Rewrite([Replace(call, "{tensor}", {"tensor": given})])


def _is_share(ctx: Context, scale: ast.expr) -> bool:
    """`1.0 / xm.xrt_world_size()`"""
    match scale:
        case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Div(), right=ast.Call(func=func)):
            return ctx.names.qualified(func) in _WORLD
    return False


@CONVERTERS.on(f"{XM}add_step_closure")
def _closure(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    function, given = argument(call, 0, "closure"), argument(call, 1, "args")
    if function is None or not dotted(function) or not isinstance(ctx.names.parent(call), ast.Expr):
        return Report("call the function itself, after the step")
    holes = {"function": function}
    if isinstance(given, ast.Tuple) and not any(isinstance(x, ast.Starred) for x in given.elts):
        holes |= {f"a{i}": x for i, x in enumerate(given.elts)}
        arguments = ", ".join(f"{{a{i}}}" for i in range(len(given.elts)))
    elif given is None:
        arguments = ""
    else:
        holes["given"], arguments = given, "*{given}"
    return Rewrite([Replace(call, f"{{function}}({arguments})", holes)])


@CONVERTERS.on(f"{XM}set_rng_state", "torch_xla.manual_seed")
def _seed(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    seed = argument(call, 0, "seed")
    if seed is None:
        return Report("the source doesn't show its arguments")
    word, requires = of_torch(ctx.names, "torch.cuda.manual_seed")
    return Rewrite([Replace(call, f"{word}({{seed}})", {"seed": seed})], requires)


@CONVERTERS.on(f"{XM}is_xla_tensor")
def _is_on_device(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    tensor = argument(call, 0, "tensor")
    if not isinstance(tensor, ast.Name | ast.Attribute | ast.Subscript):
        return Report("ask for the device's type")
    return Rewrite([Replace(call, "{tensor}.is_cuda", {"tensor": tensor})])


@CONVERTERS.on("torch_xla.amp.autocast")
def _autocast(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    device = argument(call, 0, "device")
    if device is None or len(call.args) > 1:
        return Report("write torch.autocast with keywords")
    word, requires = of_torch(ctx.names, "torch.autocast")
    torch, _ = ctx.code.torch()
    put = {} if argument(call, 2, "dtype") else {"dtype": f"{torch}.bfloat16"}
    drop: list[ast.expr | ast.keyword] = [
        *call.args,
        *(k for k in call.keywords if k.arg == "device"),
    ]
    first = ctx.code.quoted("cuda", call)
    return Rewrite([EditCall(call, function=word, drop=drop, first=first, put=put)], requires)
