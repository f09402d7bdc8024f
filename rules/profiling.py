"""torch's profilers, and the one that traces a TPU."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    dotted,
)
from migrator.rule_api.cuda_calls import unwrapped

PROFILER = Rule(
    code="CUD006",
    name="profiler",
    imports=("torch.profiler.ProfilerActivity",),
    summary="torch.profiler.profile becomes a TPU trace",
    why="""torch.profiler can't see a TPU. The runtime's class has the same interface (schedule,
`step`, `on_trace_ready`, `export_chrome_trace`) and takes traces with `jax.profiler` or
`torch_xla.debug.profiler`. TensorBoard's profile plugin and XProf open them. A range for NVIDIA's
tools (`torch.cuda.nvtx.range`), which raises without CUDA, becomes torch's `record_function`.""",
    examples=(
        Example(
            """
            from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
            with profile(
                activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
                on_trace_ready=tensorboard_trace_handler("log"),
            ) as p:
                run()
            """,
            after="""
            from torch.profiler import tensorboard_trace_handler
            import tpu_runtime
            with tpu_runtime.profile(
                on_trace_ready=tensorboard_trace_handler("log"),
            ) as p:
                run()
            """,
        ),
        Example(
            """
            import torch
            with torch.cuda.nvtx.range("forward"):
                y = model(x)
            """,
            after="""
            import torch
            with torch.profiler.record_function("forward"):
                y = model(x)
            """,
        ),
        Example(
            """
            from torch.profiler import ProfilerActivity
            activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
            """,
            says={2: "collects the kernels of a GPU"},
        ),
        Example(
            """
            import torch
            from torch.profiler import ProfilerActivity, profile
            with profile(activities=[ProfilerActivity.CPU]) as p:
                y = model(x)
            """,
            says={3: "times what the host does"},
        ),
        Example(
            """
            import torch
            with torch.cuda.nvtx.range("step {}", i):
                y = model(x)
            """,
            says={2: "marks ranges for NVIDIA's profiler"},
        ),
    ),
)


@PROFILER.on("name", "torch.profiler.ProfilerActivity.CUDA")
def activity(ctx: Context, found: Construct) -> Decision:
    traces = ctx.code.runtime("profile") is not None and not ctx.target.portable
    if traces and any(c.key == _PROFILE for c in ctx.constructs):
        return Keep("the runtime's profiler always traces the device")
    if ctx.api.device_names:
        return Keep("collects the kernels of a GPU where there is one")
    how = ctx.api.profiler
    return Report(f"collects the kernels of a GPU; a trace of the TPU is made by {how}")


_PROFILE = "torch.profiler.profile"


@PROFILER.on("name", "torch.autograd.profiler.profile")
def older_profiler(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    given = {k.arg: k.value for k in call.keywords} if call is not None else {}
    if given.keys() & {"use_cuda", "use_device"} and not ctx.target.portable:
        return Report(f"collects the kernels of a GPU; a trace is made by {ctx.api.profiler}")
    return Keep("times what the host does")


@PROFILER.on("name", "torch.autograd.profiler.emit_nvtx")
def nvtx(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    return unwrapped(ctx, call, "marks ranges for NVIDIA's profiler, and raises without CUDA")


@PROFILER.on("name", "torch.cuda.nvtx.range")
def nvtx_range(ctx: Context, found: Construct) -> Decision:
    """A context or a decorator; `range("{}", x)` formats its arguments."""
    call = ctx.names.call_of(found.node)
    plain = call if call is not None and len(call.args) == 1 and not call.keywords else None
    if plain is None or isinstance(found.node, ast.Name) or isinstance(plain.args[0], ast.Starred):
        return Report("marks ranges for NVIDIA's profiler; use torch.profiler.record_function")
    torch, requires = ctx.code.torch()
    return Rewrite([Replace(plain.func, f"{torch}.profiler.record_function")], requires)


@PROFILER.on("name", _PROFILE)
def profiler(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    if ctx.target.portable:
        return Keep("times what the host does; a GPU's kernels where there is a GPU")
    if call is None:
        return Report("torch.profiler.profile is passed on, not called")
    if any(k.arg is None for k in call.keywords):
        return Report("its arguments are unpacked (*, **); write them out")
    activities = [k for k in call.keywords if k.arg == "activities"]
    for given in activities:
        listed = given.value.elts if isinstance(given.value, ast.List | ast.Tuple) else []
        if listed and all((dotted(x) or "").endswith("Activity.CPU") for x in listed):
            return Keep("times what the host does")
    word = ctx.code.runtime("profile")
    if word is None:
        return Report(f"sees nothing of a TPU; a trace is made by {ctx.api.profiler}")
    return Rewrite([EditCall(call, function=word.code, drop=activities)], word.requires)
