"""torch_xla in the source: older spellings on torch_xla, and what they stand for elsewhere."""

import ast
import re
from collections.abc import Callable

from migrator.analysis.names import argument, dotted
from migrator.codes import Family
from migrator.construct import Construct
from migrator.edits import Delete, Edit, EditCall, Insert, Replace, Unwrap
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule

from .traces import TRACES

FAMILY = Family("XLA", "Programs for torch_xla", 140)

OLDER = Rule(
    code="XLA001",
    name="older-torch-xla",
    summary="older torch_xla code, in the spelling of today",
    why="""Guides from before PJRT (the runtime of torch_xla since 2.0) use functions that
torch_xla 2.9 no longer has (`xm.xrt_world_size`), warns of (`xm.xla_device`, `xm.mark_step`), or
refuses (`xmp.spawn(nprocs=8)`). These get today's names; what is still right stays as it is.
Arguments that went from a function's signature go from its calls. A module that is gone is
named.""",
    references=("https://docs.pytorch.org/xla/master/learn/api-guide.html",),
    examples=(
        Example(
            """
            import torch
            import torch_xla.core.xla_model as xm
            device = xm.xla_device()
            for x in data:
                y = net(x.to(device))
                xm.mark_step()
            print(xm.xrt_world_size())
            """,
            after="""
            import torch
            device = torch.device("{device}")
            for x in data:
                y = net(x.to(device))
            print(1)
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                import torch_xla.runtime as xr
                device = torch_xla.device()
                for x in data:
                    y = net(x.to(device))
                    torch_xla.sync()
                print(xr.world_size())
                """
            },
        ),
        Example(
            """
            import torch_xla.distributed.xla_multiprocessing as xmp
            if __name__ == "__main__":
                xmp.spawn(main, args=(flags,), nprocs=8, start_method="fork")
            """,
            except_on={
                "torch_xla": """
                import torch_xla
                if __name__ == "__main__":
                    torch_xla.launch(main, args=(flags,), start_method="fork")
                """
            },
        ),
    ),
    for_native_code=True,
)

CONVERTED = Rule(
    code="XLA002",
    name="from-torch-xla",
    foreign=True,
    summary="a program for torch_xla, read as the GPU program that it stands for",
    why="""Where the target is not torch_xla, each of its functions is what a GPU program has in
its place: a device, an optimizer's step, torch.distributed, `torch.multiprocessing.spawn`. That
program is then migrated as any other (`--unsafe` for a training program with ranks,
docs/several-devices.md). What only torch_xla's lazy tensors need (`mark_step`) goes. An import
below `try`, `if` or in a function is a question: without torch_xla the other branch runs, so
that both stay.""",
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

VARIABLE = Rule(
    code="XLA003",
    name="xla-variable",
    summary="an environment variable that only older releases of torch_xla read",
    why="""XRT, the runtime before PJRT, was told by the environment where its devices are;
nothing reads that any more, so a statement that sets it goes. `XLA_USE_BF16` and
`XLA_DOWNCAST_BF16` turn every float32 tensor into bfloat16 behind the program's back; torch_xla
2.9 warns of them, and other targets do not know them.""",
    examples=(
        Example(
            """
            import os
            os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"
            run()
            """,
            after="run()\n",
        ),
    ),
)

XM = "torch_xla.core.xla_model."
XR = "torch_xla.runtime."
MP = "torch_xla.distributed.xla_multiprocessing."
PL = "torch_xla.distributed.parallel_loader."
GROUP = "torch.distributed.init_process_group"


def _is_at_home(ctx: Context) -> bool:
    """Whether programs for torch_xla stay what they are."""
    return ctx.target.traces.library == TRACES.library


@OLDER.on("name", "torch_xla.*")
def today(ctx: Context, found: Construct) -> Decision | None:
    """On torch_xla: today's name."""
    if not _is_at_home(ctx):
        return None
    call = ctx.names.call_of(found.node)
    bound = ctx.names.partial_of(found.node)
    if found.key == f"{MP}spawn":
        return _launch(ctx, call, bound)
    if found.key in (f"{XR}using_pjrt", "torch_xla.experimental.pjrt.using_pjrt") and call:
        return Rewrite([Replace(call, "True")], note="PJRT is the only runtime")
    for gone, reason in _GONE.items():
        if found.key == gone or found.key.startswith(f"{gone}."):
            return Report(reason)
    given, dropped = _arguments(found.key, call or bound), _UNKNOWN.get(found.key, ())
    if _is_given_what_went(ctx, found, dropped):
        return Report("is called with what it does not take today; write the calls out")
    drop = [value for name, value in given.items() if name in dropped]
    new = _TODAY.get(found.key)
    if new is None:
        head, _, last = found.key.rpartition(".")
        module = _TODAY.get(f"{head}.*")
        new = f"{module}.{last}" if module else None
    if new is None and not drop:
        return Keep("torch_xla 2.9 has it")
    assert isinstance(found.node, ast.expr)
    word, requires = _spelled(ctx, new) if new else (None, ())
    if call is None and bound is None:
        if word is None:
            return Keep("torch_xla 2.9 has it")
        return Rewrite([Replace(found.node, word)], requires)
    renamed = _RENAMED.get(found.key, {})
    put = {new: ctx.source.code(_value(given[old])) for old, new in renamed.items()
           if isinstance(given.get(old), ast.keyword)}  # fmt: skip
    drop += [given[old] for old in renamed if isinstance(given.get(old), ast.keyword)]
    if call is not None:
        return Rewrite([EditCall(call, function=word, drop=drop, put=put)], requires)
    assert bound is not None
    edits: list[Edit] = [EditCall(bound, drop=drop, put=put)] if drop or put else []
    return Rewrite([*edits, *([Replace(found.node, word)] if word else ())], requires)


def _is_given_what_went(ctx: Context, found: Construct, dropped: tuple[str, ...]) -> bool:
    """`map(xm.get_ordinal, defaults)`, `rank = xm.get_ordinal` and `rank(0)`"""
    assert isinstance(found.node, ast.expr)
    if not dropped or ctx.names.call_of(found.node) is not None:
        return False
    bound = ctx.names.partial_of(found.node)
    for call, _ in ctx.names.calls(found.node):
        if call is not bound and not set(dropped).isdisjoint(_arguments(found.key, call)):
            return True
    above = ctx.parent(found.node)
    if not isinstance(above, ast.Call) or found.node not in above.args:
        return False
    names = _POSITIONS.get(found.key, ("defval",))
    taken = [name for name in names if name not in dropped]
    return ctx.names.qualified(above.func) == "map" and len(above.args) - 1 > len(taken)


# What was renamed; a module by the star.
_TODAY = {
    f"{XM}xla_device": "torch_xla.device",
    f"{XM}mark_step": "torch_xla.sync",
    f"{XM}xrt_world_size": f"{XR}world_size",
    f"{XM}get_ordinal": f"{XR}global_ordinal",
    "torch_xla.experimental.pjrt.broadcast_master_param": f"{XM}broadcast_master_param",
    "torch_xla.experimental.pjrt.*": "torch_xla.runtime",
    "torch_xla.experimental.xla_sharding.*": "torch_xla.distributed.spmd",
}
# Modules and functions that torch_xla 2.9 no longer has, and what to do.
_GONE = {
    "torch_xla.distributed.data_parallel": "replicas in threads, from before PJRT; start a process "
    "for each device with torch_xla.launch",
    "torch_xla.distributed.xla_dist": "is gone: start the program on each host, by gcloud or ssh",
    "torch_xla.utils.gcsfs": "is gone: read buckets with gcsfs or google.cloud.storage",
    "torch_xla.utils.cached_dataset": "is gone: use a Dataset of PyTorch",
    "torch_xla.utils.tf_record_reader": "is gone: read TFRecords with a library of their own",
    "torch_xla.amp.GradScaler": "is gone, and bfloat16 needs no scaling: take the scaler out",
    f"{XM}parse_xla_device": "is gone: torch.device(…) has type and index",
    f"{XM}run_step_closures": "is gone: torch_xla.sync() runs them",
    f"{XM}toPlatformAgnosticDevice": "is gone",
}
# Parameters that are gone.
_UNKNOWN = {
    f"{XM}xla_device": ("devkind",),
    f"{XM}xrt_world_size": ("defval",),
    f"{XM}get_ordinal": ("defval",),
    f"{XM}get_local_ordinal": ("defval",),
    f"{XM}get_xla_supported_devices": ("devkind",),
}
_RENAMED = {f"{XM}xla_device": {"n": "index"}}
_POSITIONS = {
    f"{XM}xla_device": ("n", "devkind"),
    f"{XM}get_xla_supported_devices": ("devkind", "max_devices"),
}


def _arguments(key: str, call: ast.Call | None) -> dict[str, ast.expr | ast.keyword]:
    """What a call, or a `partial`, gives a function by the names of its older parameters."""
    if call is None:
        return {}
    names = _POSITIONS.get(key, ("defval",))
    args = call.args[1:] if (dotted(call.func) or "").endswith("partial") else call.args
    first = args[0] if args else None
    if key.endswith("get_xla_supported_devices") and isinstance(first, ast.Constant):
        if not isinstance(first.value, str):
            names = ("max_devices",)  # as it is today
    given: dict[str, ast.expr | ast.keyword] = dict(zip(names, args, strict=False))
    return given | {k.arg: k for k in call.keywords if k.arg is not None}


def _value(given: ast.expr | ast.keyword) -> ast.expr:
    return given.value if isinstance(given, ast.keyword) else given


def _spelled(ctx: Context, name: str) -> tuple[str, tuple[str, ...]]:
    """How this file spells a function of torch_xla, and what has to be imported for it."""
    module, _, last = name.rpartition(".")
    if module == "torch_xla":
        return name, (module,)
    known = ctx.names.spelled(module)
    alias = known or {"runtime": "xr", "spmd": "xs", "xla_model": "xm"}[module.rpartition(".")[2]]
    return f"{alias}.{last}", () if known else (f"{module} as {alias}",)


def _launch(ctx: Context, call: ast.Call | None, bound: ast.Call | None) -> Decision:
    """`xmp.spawn` with a number of processes, which torch_xla decides by itself today."""
    if call is None:
        if bound is not None and not _is(argument(bound, 3, "nprocs"), None, 1):
            return Report("nprocs may only be 1 or None today; use torch_xla.launch")
        return Keep("torch_xla 2.9 has it")
    count = argument(call, 2, "nprocs")
    join, daemon = argument(call, 3, "join"), argument(call, 4, "daemon")
    if _is(count, None, 1) and _is(join, None, True) and _is(daemon, None, False):
        return Keep("torch_xla 2.9 has it")
    if not _is(join, None, True) or not _is(daemon, None, False):
        return Report("torch_xla waits for its processes today, whatever join and daemon say")
    assert count is not None
    drop: list[ast.expr | ast.keyword] = [*call.args[2:]]
    drop += [k for k in call.keywords if k.arg in ("nprocs", "join", "daemon")]
    put = {}
    if len(call.args) > 5:
        put["start_method"] = ctx.source.code(call.args[5])
    if isinstance(count, ast.Constant):
        note = "on all devices: PJRT takes 1 or all"
    else:
        put["debug_single_process"] = f"{ctx.source.code(count)} == 1"
        note = "on one device or on all: PJRT takes no other number"
        if not isinstance(count, ast.Name | ast.Attribute | ast.Subscript):
            return Report("nprocs may only be 1 or None today; use torch_xla.launch")
    edit = EditCall(call, function="torch_xla.launch", drop=drop, put=put)
    return Rewrite([edit], ("torch_xla",), note)


def _is(node: ast.expr | None, *values: object) -> bool:
    if node is None:
        return None in values
    return isinstance(node, ast.Constant) and any(node.value is v for v in values)


# ---- elsewhere: what it stands for ---------------------------------------------------------------

_Converter = Callable[[Context, Construct, ast.Call], Decision]
_CONVERTERS: dict[str, _Converter] = {}
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
# Nothing to do in one process whose operations run in order.
_NOTHING = (f"{XM}broadcast_master_param", f"{XM}reduce_gradients", f"{XM}rendezvous",
            f"{XR}initialize_cache")  # fmt: skip
_ADVICE = {
    "torch_xla.debug.metrics": "counts what torch_xla compiles; TPU_RUNTIME_REPORT=1 tells of this "
    "target's compilations",
    "torch_xla.utils.serialization": "has files of its own format; use torch.save and torch.load, "
    "and convert older files where torch_xla is installed",
    f"{XM}get_memory_info": "use tpu_runtime.mem_get_info(), which gives bytes (free, total)",
    "torch_xla.debug.profiler": "profiles torch_xla; use jax.profiler",
    "torch_xla.distributed.spmd": "places tensors by hand; docs/sharding.md says what there is",
    f"{XM}xla_device_hw": "use tpu_runtime.get_device_name()",
    f"{XM}send_cpu_data_to_device": "use .to(device) for each tensor",
    "torch_xla.test": "belongs to torch_xla's own tests; take it out",
}


def _converts(*keys: str) -> Callable[[_Converter], _Converter]:
    def register(converter: _Converter) -> _Converter:
        _CONVERTERS.update(dict.fromkeys(keys, converter))
        return converter

    return register


@CONVERTED.on("name", "torch_xla.*")
def elsewhere(ctx: Context, found: Construct) -> Decision | None:
    if _is_at_home(ctx):
        return None
    assert isinstance(found.node, ast.expr)
    if ctx.names.ends_without(found.node):
        return Report("the program ends where torch_xla can not be imported; import it plainly")
    if ctx.names.is_question(found.node):
        return Keep("torch_xla is imported where it is there; without it the other branch runs")
    call = ctx.names.call_of(found.node)
    if found.key in _SAME:
        word, requires = _of_torch(ctx, _SAME[found.key])
        return Rewrite([Replace(found.node, word)], requires)
    if call is not None and not any(isinstance(a, ast.Starred) for a in call.args):
        if found.key in _CALLS:
            word, requires = _of_torch(ctx, _CALLS[found.key])
            word = word.replace('"cuda"', ctx.quoted("cuda", call))
            return Rewrite([Replace(call, word)], requires)
        if found.key in _CONVERTERS:
            return _CONVERTERS[found.key](ctx, found, call)
    for key, advice in _ADVICE.items():
        if found.key == key or found.key.startswith(f"{key}."):
            return Report(advice)
    return Report(f"{found.key} belongs to torch_xla, which {ctx.target.name} does without")


@CONVERTED.on("store", "torch_xla.*")
def replaced(ctx: Context, found: Construct) -> Decision:
    if _is_at_home(ctx):
        return Keep("a part of torch_xla itself is replaced")
    return Report(f"the program replaces {found.key} itself")


@CONVERTED.on("star", "torch_xla*")
def star(ctx: Context, found: Construct) -> Decision:
    return Report("what a star import brings can not be told apart; import the names one by one")


def _of_torch(ctx: Context, name: str) -> tuple[str, tuple[str, ...]]:
    """A name of torch as this file spells it; its longest module that is imported counts."""
    head, bracket, rest = name.partition("(")
    path = head.split(".")
    for end in range(len(path) - 1, 0, -1):
        spelled = ctx.names.spelled(".".join(path[:end]))
        if spelled is not None:
            return ".".join([spelled, *path[end:]]) + bracket + rest, ()
    needed = "torch" if path[1] in ("device", "cuda", "autocast", "save") else ".".join(path[:-1])
    return name, (needed,)


def _has_ranks(ctx: Context) -> bool:
    """Whether the file may belong to a program that starts a process for each device."""
    if ctx.for_others:
        return True
    started = (*_STARTS, GROUP)
    if any(c.kind == "name" and c.key in started for c in ctx.constructs):
        return True
    return ctx.project is not None and bool(ctx.project.distributed_program())


def _gone(ctx: Context, call: ast.Call) -> Decision:
    statement = ctx.parent(call)
    if isinstance(statement, ast.Expr):
        return Rewrite([Delete(statement)])
    return Report("what it returns is used; put it on a line of its own")


@_converts(f"{XM}mark_step", "torch_xla.sync")
def _sync(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if _is(argument(call, 0, "wait"), None, False):
        return _gone(ctx, call)
    word, requires = _of_torch(ctx, "torch.cuda.synchronize()")
    return Rewrite([Replace(call, word)], requires)


@_converts("torch_xla.step")
def _step(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    item = ctx.parent(call)
    block = ctx.parent(item) if item is not None else None
    if isinstance(item, ast.withitem) and isinstance(block, ast.With) and not item.optional_vars:
        return Rewrite([Unwrap(block, [item])])
    return Report("steps are compiled without it")


@_converts(*_NOTHING)
def _nothing(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    return _gone(ctx, call)


@_converts(f"{XM}optimizer_step")
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


@_converts(*_RANK, *_WORLD)
def _number(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    is_rank = found.key in _RANK
    if not _has_ranks(ctx):
        return Rewrite([Replace(call, "0" if is_rank else "1")], note="one process, one device")
    name = "get_rank" if is_rank else "get_world_size"
    word, requires = _of_torch(ctx, f"torch.distributed.{name}()")
    return Rewrite([Replace(call, word)], requires)


@_converts(f"{XM}is_master_ordinal")
def _is_master(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if _has_ranks(ctx):
        word, requires = _of_torch(ctx, "torch.distributed.get_rank() == 0")
        return Rewrite([Replace(call, word)], requires)
    block = ctx.parent(call)
    if isinstance(block, ast.If) and not block.orelse:
        above = ctx.parent(block)
        if not isinstance(above, ast.If) or above.orelse != [block]:
            return Rewrite([Unwrap(block)])
    return Rewrite([Replace(call, "True")])


@_converts(f"{XM}master_print")
def _print(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    drop = [k for k in call.keywords if k.arg in ("local", "fd")]
    file = argument(call, None, "fd")
    put = {"file": ctx.source.code(file)} if file is not None else {}
    return Rewrite([EditCall(call, function="print", drop=drop, put=put)])


@_converts(f"{XM}save")
def _save(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if any(k.arg in ("data", "file_or_path") for k in call.keywords):
        return Report("name the arguments of torch.save: obj and f")
    drop: list[ast.expr | ast.keyword] = [*call.args[2:], *call.keywords]
    word, requires = _of_torch(ctx, "torch.save")
    return Rewrite([EditCall(call, function=word, drop=drop)], requires)


@_converts(f"{XM}mesh_reduce")
def _mesh_reduce(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    data, reduce = argument(call, 1, "data"), argument(call, 2, "reduce_fn")
    if data is None or reduce is None:
        return Report("its arguments can not be seen")
    function = "{reduce}" if dotted(reduce) else "({reduce})"
    return Rewrite([Replace(call, f"{function}([{{data}}])", {"data": data, "reduce": reduce})])


@_converts(f"{XM}all_reduce")
def _all_reduce(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    given, scale = argument(call, 1, "inputs"), argument(call, 2, "scale")
    if given is None or argument(call, 3, "groups") is not None:
        return Report("its arguments can not be followed")
    if scale is not None and not _is_share(ctx, scale) and not _is(scale, 1, 1.0):
        return Report("scales what it sums; multiply on a line of its own")
    statement = ctx.parent(call)
    if isinstance(statement, ast.Expr):
        if scale is None and _has_ranks(ctx):
            match given:
                case ast.List(elts=[tensor]):
                    word, requires = _of_torch(ctx, "torch.distributed.all_reduce")
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


@_converts(f"{XM}add_step_closure")
def _closure(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    function, given = argument(call, 0, "closure"), argument(call, 1, "args")
    if function is None or not dotted(function) or not isinstance(ctx.parent(call), ast.Expr):
        return Report("call the function itself, behind the step")
    holes = {"function": function}
    if isinstance(given, ast.Tuple) and not any(isinstance(x, ast.Starred) for x in given.elts):
        holes |= {f"a{i}": x for i, x in enumerate(given.elts)}
        arguments = ", ".join(f"{{a{i}}}" for i in range(len(given.elts)))
    elif given is None:
        arguments = ""
    else:
        holes["given"], arguments = given, "*{given}"
    return Rewrite([Replace(call, f"{{function}}({arguments})", holes)])


@_converts(f"{XM}set_rng_state", "torch_xla.manual_seed")
def _seed(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    seed = argument(call, 0, "seed")
    if seed is None:
        return Report("its arguments can not be seen")
    word, requires = _of_torch(ctx, "torch.cuda.manual_seed")
    return Rewrite([Replace(call, f"{word}({{seed}})", {"seed": seed})], requires)


@_converts(f"{XM}is_xla_tensor")
def _is_on_device(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    tensor = argument(call, 0, "tensor")
    if not isinstance(tensor, ast.Name | ast.Attribute | ast.Subscript):
        return Report("ask for the device's type")
    return Rewrite([Replace(call, "{tensor}.is_cuda", {"tensor": tensor})])


@_converts("torch_xla.amp.autocast")
def _autocast(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    device = argument(call, 0, "device")
    if device is None or len(call.args) > 1:
        return Report("write torch.autocast with keywords")
    word, requires = _of_torch(ctx, "torch.autocast")
    torch, _ = ctx.torch()
    put = {} if argument(call, 2, "dtype") else {"dtype": f"{torch}.bfloat16"}
    drop: list[ast.expr | ast.keyword] = [
        *call.args,
        *(k for k in call.keywords if k.arg == "device"),
    ]
    first = ctx.quoted("cuda", call)
    return Rewrite([EditCall(call, function=word, drop=drop, first=first, put=put)], requires)


_STARTS = (f"{MP}spawn", "torch_xla.launch")


@_converts(*_STARTS)
def _spawn(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """A process for each device: as torch.multiprocessing, whose spawn it is made after."""
    is_spawn = found.key.endswith("spawn")
    single = argument(call, 3, "debug_single_process") if not is_spawn else None
    if _is(argument(call, 2, "nprocs"), 1) or not _is(single, None, False):
        return Report("in one process: call the function itself, with 0 as its first argument")
    spawn, of_spawn = _of_torch(ctx, "torch.multiprocessing.spawn")
    devices, of_devices = _of_torch(ctx, "torch.cuda.device_count()")
    gone = ("nprocs", "start_method", "debug_single_process")
    drop: list[ast.expr | ast.keyword] = [k for k in call.keywords if k.arg in gone]
    drop += [x for i, x in enumerate(call.args) if i == 2 or i > (4 if is_spawn else 1)]
    edits: list[Edit] = [EditCall(call, function=spawn, drop=drop, put={"nprocs": devices})]
    requires = [*of_spawn, *of_devices]
    if not any(c.key == GROUP for c in ctx.constructs):
        name, of_group = _of_torch(ctx, GROUP)
        line = f"{name}({ctx.quoted('nccl')})"
        edits.append(Insert(ctx.names.tree, ctx.names.statement(call), [line], before=True))
        requires += of_group
    return Rewrite(edits, requires)


@_converts(f"{MP}MpModelWrapper")
def _wrapper(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    model = argument(call, 0, "model")
    if model is None:
        return Report("its arguments can not be seen")
    return Rewrite([Replace(call, "{model}", {"model": model})])


@_converts(f"{MP}MpSerialExecutor")
def _executor(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """Its `run` calls a function; there is nobody to wait for."""
    edits: list[Edit] = []
    uses: list[ast.expr] = [*_uses(ctx, call)]
    for use in uses or [call]:
        method = ctx.parent(use)
        run = ctx.names.call_of(method) if isinstance(method, ast.Attribute) else None
        if run is None or len(run.args) != 1 or run.keywords:
            return Report("call the functions themselves: one process has nobody to wait for")
        function = "{function}" if dotted(run.args[0]) else "({function})"
        if isinstance(run.args[0], ast.Lambda) and not run.args[0].args.args:
            edits.append(Replace(run, "{value}", {"value": run.args[0].body}))
        else:
            edits.append(Replace(run, f"{function}()", {"function": run.args[0]}))
    statement = ctx.parent(call)
    assert isinstance(statement, ast.Assign)
    return Rewrite([Delete(statement), *edits])


@_converts(f"{PL}ParallelLoader", f"{PL}MpDeviceLoader")
def _loader(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    loader = argument(call, 0, "loader", "cpu_loader")
    target = ctx.words.device_loader
    if target is None:
        return Report("a portable program moves each batch itself: use .to(device)")
    if loader is None or any(k.arg in ("input_sharding", None) for k in call.keywords):
        return Report("its arguments can not be followed")
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
        elif not isinstance(ctx.parent(use), ast.Delete):
            return Report("its use can not be followed; loop over the loader, and move batches "
                          "with .to(device)")  # fmt: skip
    return Rewrite(edits, target.requires)


def _retrieved(ctx: Context, loader: ast.expr) -> ast.Call | None:
    """`loader.per_device_loader(device)`"""
    method = ctx.parent(loader)
    if isinstance(method, ast.Attribute) and method.attr == "per_device_loader":
        return ctx.names.call_of(method)
    return None


def _uses(ctx: Context, value: ast.expr) -> list[ast.Name]:
    """Where a name is read that only stands for values like this one."""
    match ctx.parent(value):
        case ast.Assign(targets=[ast.Name() as target]):
            key = ctx.names.qualified(value.func) if isinstance(value, ast.Call) else None
            for binding in ctx.names.lookup(target):
                if isinstance(ctx.parent(binding.node), ast.Delete):
                    continue
                other = binding.value
                if not isinstance(other, ast.Call) or ctx.names.qualified(other.func) != key:
                    return []
            return list(ctx.names.uses(target.id, ctx.names.scope_of(target)))
    return []


@VARIABLE.on("command", "xla")
def command(ctx: Context, found: Construct) -> Decision:
    text = ctx.text(found)
    setting = re.fullmatch(r"""(\s*export\s+)XRT_TPU_CONFIG=(?:"[^"]*"|'[^']*')\s*""", text)
    if setting is not None and _is_at_home(ctx):
        told = "what older guides told XRT"
        return ctx.with_text(found, f"{setting[1]}PJRT_DEVICE=TPU", told)
    return Report("of torch_xla before PJRT: nothing reads it today; take it out")


@VARIABLE.on("variable", *TRACES.older_variables)
def variable(ctx: Context, found: Construct) -> Decision:
    if "BF16" in found.key:
        if _is_at_home(ctx):
            return Report("makes bfloat16 of every float32 tensor, deprecated since torch_xla 2.6: "
                          "use model.to(torch.bfloat16) or torch.autocast")  # fmt: skip
        return Report("means nothing here: use model.to(torch.bfloat16) or torch.autocast")
    place = ctx.parent(found.node)
    statement = ctx.parent(place) if place is not None else None
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=owner)]) as setting:
            if setting.targets == [place] and ctx.names.qualified(owner) == "os.environ":
                return Rewrite([Delete(setting)], note="of XRT, which PJRT took the place of")
    return Report("of XRT, which PJRT took the place of: nothing sets or reads it today")
