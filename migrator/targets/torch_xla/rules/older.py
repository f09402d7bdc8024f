"""torch_xla itself as target: older spellings, in those of today."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Example,
    Family,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
    dotted,
)

from .torch_xla_names import MP, XM, XR, is_at_home, is_constant

FAMILY = Family("XLA", "Programs for torch_xla", 140)

OLDER = Rule(
    code="XLA001",
    name="older-torch-xla",
    summary="older torch_xla code, in today's spelling",
    why="""Guides from before PJRT (torch_xla's runtime since 2.0) use functions that torch_xla 2.9
no longer has (`xm.xrt_world_size`), warns about (`xm.xla_device`, `xm.mark_step`), or refuses
(`xmp.spawn(nprocs=8)`). They get today's names; what is still right stays. Arguments that a
function no longer has are removed. Modules that no longer exist are reported.""",
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


@OLDER.on("name", "torch_xla.*")
def today(ctx: Context, found: Construct) -> Decision | None:
    """torch_xla itself: today's name."""
    if not is_at_home(ctx):
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
        return Report("is called with arguments that it no longer takes; write the calls out")
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
    above = ctx.names.parent(found.node)
    if not isinstance(above, ast.Call) or found.node not in above.args:
        return False
    names = _POSITIONS.get(found.key, ("defval",))
    taken = [name for name in names if name not in dropped]
    return ctx.names.qualified(above.func) == "map" and len(above.args) - 1 > len(taken)


# Renamed names; the star stands for a module.
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
    "torch_xla.amp.GradScaler": "is gone, and bfloat16 needs no scaling: remove the scaler",
    f"{XM}parse_xla_device": "is gone: torch.device(…) has type and index",
    f"{XM}run_step_closures": "is gone: torch_xla.sync() runs them",
    f"{XM}toPlatformAgnosticDevice": "is gone",
}
# Removed parameters.
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
    """The arguments of a call, or a `partial`, by the names of the function's older parameters."""
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
    """How this file spells a function of torch_xla, and the import that it needs."""
    module, _, last = name.rpartition(".")
    if module == "torch_xla":
        return name, (module,)
    known = ctx.names.spelled(module)
    alias = known or {"runtime": "xr", "spmd": "xs", "xla_model": "xm"}[module.rpartition(".")[2]]
    return f"{alias}.{last}", () if known else (f"{module} as {alias}",)


def _launch(ctx: Context, call: ast.Call | None, bound: ast.Call | None) -> Decision:
    """`xmp.spawn` with a number of processes, which torch_xla chooses by itself today."""
    if call is None:
        if bound is not None and not is_constant(argument(bound, 3, "nprocs"), None, 1):
            return Report("nprocs may only be 1 or None today; use torch_xla.launch")
        return Keep("torch_xla 2.9 has it")
    count = argument(call, 2, "nprocs")
    join, daemon = argument(call, 3, "join"), argument(call, 4, "daemon")
    if (
        is_constant(count, None, 1)
        and is_constant(join, None, True)
        and is_constant(daemon, None, False)
    ):
        return Keep("torch_xla 2.9 has it")
    if not is_constant(join, None, True) or not is_constant(daemon, None, False):
        return Report("torch_xla always waits for its processes, whatever join and daemon say")
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
