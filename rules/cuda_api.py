"""torch.cuda functions: one table from names to their replacements."""

import ast
import re

from migrator.rule_api import (
    MIRRORED,
    RUNTIME,
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Family,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    Safety,
)
from migrator.rule_api.cuda_calls import counterpart, names_nothing, removal, unwrapped
from migrator.rule_api.devices import Role, roles
from migrator.rule_api.gpu_only_code import HOUSEKEEPING

FAMILY = Family("CUD", "torch.cuda", 40)

FUNCTION = Rule(
    code="CUD001",
    name="cuda-function",
    summary="a torch.cuda function with a counterpart on the target",
    why="""Synchronisation, timing, seeds, memory figures and device properties. If the target
has a simple spelling, that is used. Otherwise the runtime (`tpu_runtime`) has the function under
torch.cuda's name, with the same arguments and units. If the number of the current device is
passed as a device, it becomes the target's device.""",
    examples=(
        Example(
            """
            import torch
            torch.cuda.synchronize()
            """,
            after="""
            import torch
            import tpu_runtime
            tpu_runtime.synchronize()
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                torch_xla.sync(wait=True)
                """
            },
        ),
        Example(
            """
            import torch
            start = torch.cuda.Event(enable_timing=True)
            start.record()
            """,
            after="""
            import torch
            import tpu_runtime
            start = tpu_runtime.Event(enable_timing=True)
            start.record()
            """,
        ),
        Example(
            """
            import torch
            torch.cuda.manual_seed_all(0)
            """,
            after="""
            import torch
            import tpu_runtime
            tpu_runtime.manual_seed_all(0)
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                torch_xla.manual_seed(0)
                """
            },
        ),
        Example(
            """
            import torch


            class Bank:
                def __init__(self, device):
                    self.x = torch.zeros(2, device=device)


            bank = Bank(torch.cuda.current_device())
            log(f"on {torch.cuda.current_device()}")
            """,
            after="""
            import torch


            class Bank:
                def __init__(self, device):
                    self.x = torch.zeros(2, device=device)


            bank = Bank("{device}")
            log(f"on {0}")
            """,
        ),
        Example(
            """
            import torch
            used = torch.cuda.max_memory_allocated() / 2**20
            """,
            after="""
            import torch
            import tpu_runtime
            used = tpu_runtime.max_memory_allocated() / 2**20
            """,
        ),
        Example(
            """
            import torch
            def current():
                return torch.cuda.current_device()
            """,
            says={3: "its use can't be followed"},
        ),
        Example(
            """
            import torch
            timers = {"device": torch.Event}
            """,
            says={2: "the class itself is passed on"},
        ),
    ),
)

NOTHING = Rule(
    code="CUD002",
    name="cuda-housekeeping",
    summary="CUDA housekeeping that a TPU does not need",
    why="""Emptying the caching allocator, choosing a current device, profiler ranges: there is
nothing to do on the target, and some of these raise an error without CUDA. The statement is
removed.""",
    examples=(
        Example(
            """
            import torch
            x = f()
            torch.cuda.empty_cache()
            y = g(x)
            """,
            after="""
            import torch
            x = f()
            y = g(x)
            """,
        ),
        Example(
            """
            import torch
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            """,
            after="import torch\n",
        ),
        Example(
            """
            import torch
            with torch.cuda.device(0):
                y = f(x)  # heavy
            print(y)
            """,
            after="""
            import torch
            y = f(x)  # heavy
            print(y)
            """,
        ),
        Example(
            """
            import torch
            clear = torch.cuda.empty_cache
            """,
            says={2: "is passed on, not called"},
        ),
        Example(
            """
            import torch
            torch.cuda.set_device(next(devices))
            """,
            says={2: "would drop next(devices)"},
        ),
    ),
)


OTHER = Rule(
    code="CUD005",
    name="cuda-only-function",
    summary="a torch.cuda function without a counterpart",
    why="""The function asks about, or controls, something that only NVIDIA hardware has. The
message says what to use instead, if anything.""",
    safety=Safety.DISPLAY_ONLY,
    for_cuda=True,
    examples=(
        Example(
            """
            import torch
            cap = torch.cuda.get_device_capability()
            """,
        ),
        Example(
            """
            import torch
            torch.cuda.cudnn_enabled = False
            """,
            says={2: "PyTorch has no such name"},
        ),
        Example(
            """
            import torch
            try:
                y = model(x)
            except torch.cuda.OutOfMemoryError:
                y = None
            """,
            says={4: "a TPU never raises it"},
        ),
        Example(
            """
            import torch
            try:
                y = model(x)
            except RuntimeError as error:
                if "out of memory" in str(error):
                    y = None
            """,
            says={5: "RESOURCE_EXHAUSTED"},
        ),
    ),
)


_REASONS = {
    "OutOfMemoryError": "a TPU never raises it; XLA raises RuntimeError with RESOURCE_EXHAUSTED",
    "get_device_capability": "an NVIDIA number; decide by device name, if at all",
    "get_arch_list": "lists NVIDIA architectures",
    "rng_state": "the device's random state has another form; seed it instead",
    "nvtx": "use the target's annotations", "utilization": "use the TPU's own monitoring",
    "memory_snapshot": "shows CUDA's caching allocator; use the profiler's memory view",
    "is_initialized": "asks about the CUDA context",
    "cudart": "calls the CUDA runtime",
}  # fmt: skip


@FUNCTION.on("name", *(f"torch.cuda.{n}" for n in sorted(MIRRORED) if not n.endswith("Tensor")),
             "torch.cuda.is_current_stream_capturing", node=ast.expr)  # fmt: skip
def function(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    name = found.key.removeprefix("torch.cuda.")
    if name in ("autocast", "is_available"):
        return None  # they have rules of their own
    if name == "current_device" and not ctx.target.portable:
        return _current_device(ctx, node)
    return counterpart(ctx, node, name)


def _current_device(ctx: Context, node: ast.expr) -> Decision:
    """The number of the only device, or the device itself if it is passed where one is accepted."""
    call = ctx.names.call_of(node)
    used = set(roles(ctx.flow, call, ctx.project)) if call is not None else set()
    if Role.UNKNOWN in used:
        return Report(
            f"its use can't be followed: as a number it is 0, as a device {ctx.api.device!r}"
        )
    if {Role.NUMBER, Role.DEVICE} <= used:
        return Report("used as a number and as a device; use two names")
    if call is not None and Role.DEVICE in used:
        return Rewrite([Replace(call, ctx.code.device(call))])
    return counterpart(ctx, node, "current_device")


@FUNCTION.on("name", "torch.Event", node=ast.expr)
def event(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    call = ctx.names.call_of(node)
    if call is None:
        return Report("the class itself is passed on")
    if "torch.cuda.Event" in ctx.api.renames:
        return Keep("times any accelerator")
    word = ctx.code.runtime("Event")
    if word is None:
        return ctx.code.lacks("torch.Event")
    return Rewrite([EditCall(call, function=word.code, drop=call.args[:1])], word.requires)


@NOTHING.on("name", *(f"torch.cuda.{n}" for n in HOUSEKEEPING))
def nothing(ctx: Context, found: Construct) -> Decision:
    return removal(ctx, found)


@NOTHING.on("name", "torch.cuda.device", "torch.cuda.device_of")
def device_context(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    word = ctx.api.renames.get("torch.cuda.device")
    if word is not None and call is not None and len(call.args) == 1:
        part = ".device.index" if found.key.endswith("_of") else ""
        if not part and ctx.flow.kind(call.args[0]) & Kind.DEVICE:
            part = ".index"
        return Rewrite(
            [Replace(call, f"{word.code}({{x}}{part})", {"x": call.args[0]})], word.requires
        )
    return unwrapped(ctx, call, "chooses a CUDA device; there is one device here")


@OTHER.on("name", "torch.cuda*", "torch.version.cuda*", node=ast.expr)
def other(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    name = found.key.removeprefix("torch.cuda").lstrip(".")
    if not name:
        return _module(ctx, found)
    if found.key.startswith("torch.version."):
        return Report("the version of the GPU toolkit is None on a TPU machine")
    said = ctx.source.code(node)  # a script for XPU uses torch.xpu
    what = re.sub(r"^[gs]et_(?=rng_)|_all$|(?<=^nvtx)\.range$", "", name)
    return Report(_REASONS.get(what, f"{said} has no counterpart on a TPU"))


@OTHER.on("store", "*")
def replaced(ctx: Context, found: Construct) -> Decision:
    if names_nothing(ctx, found):
        return Keep("PyTorch has no such name, and the program never reads it")
    reason = f"the program replaces {found.key} itself"
    return Report(reason, whole=ctx.names.statement(found.node))


@OTHER.on("star", "torch.cuda*", "torch.amp*", "torch.accelerator*", "torch.distributed*")
def star_import(ctx: Context, found: Construct) -> Decision:
    return Report("a star import does not show which names it brings; import them one by one")


@OTHER.on("code", "text")
def code_in_text(ctx: Context, found: Construct) -> Decision:
    return Report("code in a string is not read")


@OTHER.on("code", "doctest")
def examples_of_docstring(ctx: Context, found: Construct) -> Decision:
    return Report("its examples use a GPU, and this file runs them: change them by hand")


@OTHER.on("import", "one of several")
def one_of_several(ctx: Context, found: Construct) -> Decision:
    return Report("the name has another meaning in this file as well; its uses stay as they are")


@OTHER.on("string", "out of memory")
def out_of_memory(ctx: Context, found: Construct) -> Decision:
    return Report("one of CUDA's error messages; XLA's says RESOURCE_EXHAUSTED")


@OTHER.on("string", "torch.cuda")
def by_text(ctx: Context, found: Construct) -> Decision:
    whole = ctx.names.parent(found.node)
    if whole is not None and (ctx.names.qualified(whole) or "").startswith("torch.cuda"):
        return _module(ctx, Construct(found.kind, found.key, whole))
    return Report("a string that names a part of CUDA; a TPU has no such part")


@OTHER.on("string", "cuda")
def module_by_name(ctx: Context, found: Construct) -> Decision | None:
    """`getattr(torch, "cuda")`"""
    whole = ctx.names.parent(found.node)
    if isinstance(whole, ast.Call) and ctx.names.qualified(whole) == "torch.cuda":
        return _module(ctx, Construct(found.kind, found.key, whole))
    return None


@OTHER.on("name", "torch.get_device_module")
def device_module(ctx: Context, found: Construct) -> Decision:
    if ctx.api.device_names:  # PyTorch's own
        return Report("the device's module lacks most of torch.cuda; torch.accelerator has it")
    how = f"; {RUNTIME} has torch.cuda's functions" if ctx.target.runtime else ""
    return Report(f"the target has no such module{how}")


@OTHER.on("name", "torch.OutOfMemoryError")
def out_of_memory_error(ctx: Context, found: Construct) -> Decision:
    return Report(_REASONS["OutOfMemoryError"])


def _module(ctx: Context, found: Construct) -> Decision:
    """`torch.cuda` itself: an alias is harmless, its uses are handled one by one."""
    if isinstance(ctx.names.parent(found.node), ast.Assign):
        return Keep("an alias; its uses are rewritten or reported one by one")
    return Report("the module torch.cuda itself is passed on")
