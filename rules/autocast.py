"""Autocast and GradScaler."""

import ast

from migrator.rule_api import (
    RUNTIME,
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    Snippet,
    filled,
)
from migrator.rule_api.gpu_only_code import asks_for_gpu
from migrator.rule_api.project import program_file
from migrator.rule_api.python import is_only_named
from migrator.rule_api.training import is_scaler

AUTOCAST = Rule(
    code="PRE003",
    name="autocast",
    summary="autocast for CUDA becomes autocast for the target, in bfloat16",
    why="""`torch.cuda.amp.autocast` silently leaves float32 on torchax and torch_xla. TPUs compute
in bfloat16, not in float16. bfloat16 has the range of float32, so nothing overflows and no loss
scaling is needed; its significand has 8 bits instead of 11.""",
    examples=(
        Example(
            """
            import torch
            with torch.cuda.amp.autocast():
                y = model(x)
            """,
            after="""
            import torch
            import tpu_runtime
            with tpu_runtime.autocast():
                y = model(x)
            """,
            except_on={
                "torch_xla": """
                import torch
                with torch.autocast("{device}", dtype=torch.bfloat16):
                    y = model(x)
                """
            },
        ),
        Example(
            """
            import torch
            with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
                y = model(x)
            """,
            after="""
            import torch
            import tpu_runtime
            with tpu_runtime.autocast(enabled=use_amp):
                y = model(x)
            """,
            except_on={
                "torch_xla": """
                import torch
                with torch.autocast("{device}", dtype=torch.bfloat16, enabled=use_amp):
                    y = model(x)
                """
            },
        ),
        Example(
            """
            import torch
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = model(x)
            """,
            says={2: "autocast of the CPU"},
        ),
        Example(
            """
            import torch
            with torch.autocast(**options):
                y = model(x)
            """,
            says={2: "its arguments are unpacked"},
        ),
        Example(
            """
            import torch
            @torch.cuda.amp.autocast
            def predict(x):
                return model(x)
            """,
            says={2: "does not switch autocast on"},
        ),
        Example(
            """
            import torch
            class Exact(torch.autograd.Function):
                @staticmethod
                @torch.cuda.amp.custom_fwd
                def forward(ctx, x):
                    return x.exp()
            """,
            says={4: "acts inside CUDA autocast only"},
        ),
    ),
)
SCALER = Rule(
    code="PRE004",
    name="grad-scaler",
    summary="GradScaler is switched off: bfloat16 needs no loss scaling",
    why="""Loss scaling keeps float16 gradients from underflowing; bfloat16 has the range of
float32. A disabled scaler passes everything through, so `scale`, `unscale_`, `step` and `update`
stay. A disabled scaler's state is empty, which one on a GPU refuses to load: where a program saves
it, the runtime's scaler keeps a state.""",
    examples=(
        Example(
            """
            import torch
            scaler = torch.cuda.amp.GradScaler()
            """,
            after="""
            import torch
            scaler = torch.amp.GradScaler("cpu", enabled=False)
            """,
        ),
        Example(
            """
            import torch
            scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
            scaler.load_state_dict(saved["scaler"])
            """,
            after="""
            import torch
            import tpu_runtime
            scaler = tpu_runtime.GradScaler(enabled=args.amp)
            scaler.load_state_dict(saved["scaler"])
            """,
        ),
        Example(
            """
            import torch
            scaler = torch.amp.GradScaler("cpu", enabled=False)
            """,
            says={2: "it is switched off"},
        ),
        Example(
            """
            from torch.cuda.amp import GradScaler
            def scaled(loss, scaler: GradScaler):
                return scaler.scale(loss)
            """,
            says={2: "no scaler is made"},
        ),
        Example(
            """
            from torch.cuda.amp import GradScaler
            scaler = build(GradScaler)
            """,
            says={2: "the class itself is passed on"},
        ),
    ),
)
_HALF_TYPES = ("torch.float16", "torch.half", "torch.bfloat16")
_AUTOCASTS = (
    "torch.cuda.amp.autocast",
    "torch.amp.autocast",
    "torch.autocast",
    "torch.cuda.autocast",
)


def _is_cpu(ctx: Context, device: ast.expr) -> bool:
    """Whether a device is always the CPU."""
    if isinstance(device, ast.IfExp):
        return _is_cpu(ctx, device.body) and _is_cpu(ctx, device.orelse)
    return ctx.flow.kind(device) == Kind.CPU


@AUTOCAST.on("name", *_AUTOCASTS, node=ast.expr)
def autocast(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    call = ctx.names.call_of(node)
    if call is None:
        return _bare_autocast(ctx, node)
    unpacked = any(isinstance(a, ast.Starred) for a in call.args)
    if unpacked or any(k.arg is None for k in call.keywords):
        return Report("its arguments are unpacked; write device and dtype out")
    names_device = found.key in ("torch.amp.autocast", "torch.autocast")
    positions = ("device_type", "dtype", "enabled") if names_device else ("enabled", "dtype")
    given = dict(zip(positions, call.args, strict=False))
    given |= {k.arg: k.value for k in call.keywords if k.arg}
    device, dtype, enabled = (given.get(k) for k in ("device_type", "dtype", "enabled"))
    if device is not None and _is_cpu(ctx, device):
        return Keep("autocast of the CPU")
    name = ctx.names.qualified(dtype) if dtype is not None else None
    literal_device = device is None or isinstance(device, ast.Constant)
    if ctx.target.asks_runtime:
        drop: list[ast.expr | ast.keyword] = []
        if device is not None and literal_device:
            drop = [next((k for k in call.keywords if k.value is device), device)]
        if drop and len(call.args) > 1:
            return Report("pass dtype and enabled by keyword")
        return Rewrite([EditCall(call, function=f"{RUNTIME}.autocast", drop=drop)])
    if not literal_device or (dtype is not None and name not in _HALF_TYPES):
        # values decided at run time stay: the runtime accepts both types and maps float16
        decides = ctx.code.runtime("autocast")
        if decides is None and ctx.api.device_names and names_device:
            return _computed(ctx, device)
        if decides is None:
            return Report("its device or dtype is computed; write them out")
        named = device if isinstance(device, ast.Constant) else None
        if named is None:
            edit = EditCall(call, function=decides.code)
        elif named in call.args:
            written = ctx.code.device_string(call)
            edit = EditCall(call, function=decides.code, drop=[named], first=written)
        else:
            put = {"device_type": ctx.code.device_string(call)}
            edit = EditCall(call, function=decides.code, put=put)
        return Rewrite([edit], decides.requires, note="float16 becomes bfloat16")
    word = ctx.api.autocast
    if word is None:
        return Report(f"{ctx.target.name} has no autocast; move what may be bfloat16 to that type")
    holes = {"enabled": enabled} if enabled is not None else {}
    chosen = filled(ctx.api.autocast_arguments, {"device": ctx.code.device_string(call)}, ())
    arguments = [*chosen, *(["enabled={enabled}"] if holes else [])]
    code = f"{word.code}({', '.join(arguments)})"
    note = "" if name == "torch.bfloat16" else "float16 becomes bfloat16"
    return Rewrite([Replace(call, code, holes)], word.requires, note=note)


def _computed(ctx: Context, device: ast.expr | None) -> Decision:
    """A computed device stays: it is for the device that the program chooses."""
    if isinstance(device, ast.Constant):
        return Rewrite([Replace(device, ctx.code.device_string(device))])
    return Keep("for the device that the program chooses")


def _bare_autocast(ctx: Context, node: ast.expr) -> Decision:
    parent = ctx.names.parent(node)
    if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
        return Report("a decorator without parentheses does not switch autocast on; add them")
    word = ctx.code.runtime("autocast")
    if word is None:
        return Report("the class itself is passed on; call it with the device and torch.bfloat16")
    return Rewrite([Replace(node, word.code)], word.requires, note="in bfloat16")


_OF_DEVICE = ("torch.amp.GradScaler", "torch.GradScaler")  # their first argument names it


@SCALER.on("name", "torch.cuda.amp.GradScaler", *_OF_DEVICE, node=ast.expr)
def scaler(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    call = ctx.names.call_of(node)
    if call is None:
        if isinstance(ctx.names.parent(node), ast.arg | ast.AnnAssign | ast.BinOp | ast.Subscript):
            return Keep("a type annotation")
        if is_only_named(ctx.names, node):
            return Keep("only asked for, and no scaler is made")
        return Report("the class itself is passed on; make a scaler with enabled=False")
    if ast.unparse(call).endswith("GradScaler('cpu', enabled=False)"):
        return Keep("it is switched off")
    if ctx.api.on_gpu is not None:
        return _on_gpu(ctx, call, ctx.api.on_gpu)
    word = ctx.code.runtime("GradScaler")
    if word is not None and (ctx.target.portable or _keeps_state(ctx)):
        named: list[ast.expr | ast.keyword] = []
        if found.key in _OF_DEVICE:
            named = [*call.args[:1], *(k for k in call.keywords if k.arg == "device")]
        edit = EditCall(call, function=word.code, drop=named)
        return Rewrite([edit], word.requires)
    torch, requires = ctx.code.torch()
    cpu = ctx.code.quoted("cpu", call)
    return Rewrite([Replace(call, f"{torch}.amp.GradScaler({cpu}, enabled=False)")], requires)


def _keeps_state(ctx: Context) -> bool:
    """Whether the program saves or loads the state of a scaler, which a GPU's checkpoints hold."""
    for attribute in ("state_dict", "load_state_dict"):
        for use in ctx.names.by_attribute.get(attribute, ()):
            if is_scaler(ctx.flow, use.value):
                return True
    here = program_file(ctx)
    files = here.files("scaler.state_dict", "scaler.load_state_dict")
    return any(file is not here for file in files)


def _on_gpu(ctx: Context, call: ast.Call, asked: Snippet) -> Decision:
    """A scaler that only scales if the program runs on a GPU."""
    if any(isinstance(a, ast.Starred) for a in call.args) or len(call.args) > 1:
        return Report("pass its arguments by keyword")
    if any(k.arg is None for k in call.keywords):
        return Report("its arguments are unpacked; write `enabled` out")
    given = next((k.value for k in call.keywords if k.arg == "enabled"), None)
    if isinstance(given, ast.Constant) and not given.value:
        return Keep("it is switched off", leaves=[call])
    if given is not None and asks_for_gpu(ctx, given):
        return Keep("scales only on a GPU", leaves=[call])
    torch, requires = ctx.code.torch()
    enabled = asked.code
    if given is not None and not (isinstance(given, ast.Constant) and given.value is True):
        enabled = f"{ctx.source.code(given)} and {asked.code}"
    device = ctx.code.quoted("cuda", call)
    named = ctx.names.qualified(call.func) in _OF_DEVICE
    drop = [*(call.args if named else ()), *(k for k in call.keywords if k.arg == "device")]
    edit = EditCall(
        call, function=f"{torch}.amp.GradScaler", drop=drop, first=device, put={"enabled": enabled}
    )
    return Rewrite([edit], (*requires, *asked.requires))


@AUTOCAST.on("name", "torch.is_autocast_enabled", "torch.get_autocast_gpu_dtype", node=ast.expr)
def asked(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    """Queries of CUDA's autocast state. A runtime with its own autocast answers them."""
    word = ctx.api.autocast
    if word is not None and RUNTIME in word.requires:
        if isinstance(node, ast.Name):  # bound before the runtime replaces it
            return Report(f"write torch.{node.id}, which the runtime answers for the target")
        if not ctx.target.portable:
            return Keep("the runtime answers for its device")
    call = ctx.names.call_of(node)
    if call is None:
        return Report("it asks about CUDA's autocast; call it with the target's device type")
    if call.args or call.keywords:
        return Keep("it asks about the device that it is given")
    device = ctx.code.device_string(call)
    if found.key == "torch.is_autocast_enabled":
        return Rewrite([EditCall(call, first=device)])
    torch, requires = ctx.code.torch()
    return Rewrite([Replace(call, f"{torch}.get_autocast_dtype({device})")], requires)


@AUTOCAST.on("name", "torch.amp*", "torch.cuda.amp*", "torch.set_autocast_enabled",
             "torch.set_autocast_gpu_dtype")  # fmt: skip
def other_amp(ctx: Context, found: Construct) -> Decision:
    name = found.key
    if name in ("torch.amp", "torch.cuda.amp"):
        return Keep("the module itself; its uses are handled one by one")
    if name.endswith(("custom_fwd", "custom_bwd")):
        assert isinstance(found.node, ast.expr)
        call = ctx.names.call_of(found.node)
        if call is not None and any(k.arg == "cast_inputs" for k in call.keywords):
            return Report("casts inside CUDA autocast only; cast in the function, autocast off")
        return Keep("acts inside CUDA autocast only, and does nothing elsewhere")
    return Report(f"{name} is for CUDA's autocast; use autocast with the target's device type")
