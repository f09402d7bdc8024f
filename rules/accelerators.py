"""Accelerators other than CUDA: Intel's XPU, Apple's MPS, Ascend's NPU, Vulkan, AMD's ROCm."""

import ast

from migrator.rule_api import (
    AddBranch,
    Construct,
    Context,
    Decision,
    Delete,
    Example,
    Family,
    Keep,
    Kind,
    Report,
    Rewrite,
    Rule,
    Safety,
    argument,
    dotted,
)
from migrator.rule_api.device_objects import device_object_word
from migrator.rule_api.devices import LIBRARIES, OTHERS, is_guarded, ladder
from migrator.rule_api.libraries import is_optional

FAMILY = Family("ACC", "Other accelerators", 130)

LADDER = Rule(
    code="ACC001",
    name="device-ladder",
    summary="code that picks a device among several kinds looks for a TPU first",
    why="""Code that asks for CUDA, then XPU, MPS or Vulkan, is meant to run on whatever is
there. A check for a TPU goes first; the others stay. With `--portable` the runtime chooses the
device, and the CUDA branch asks it.""",
    examples=(
        Example(
            """
            import torch


            def best_device():
                if torch.cuda.is_available():
                    return torch.device("cuda")
                if torch.backends.mps.is_available():
                    return torch.device("mps")
                return torch.device("cpu")
            """,
            after="""
            import torch
            import tpu_runtime


            def best_device():
                if tpu_runtime.is_available():
                    return torch.device("{device}")
                if torch.cuda.is_available():
                    return torch.device("cuda")
                if torch.backends.mps.is_available():
                    return torch.device("mps")
                return torch.device("cpu")
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                import tpu_runtime


                def best_device():
                    if tpu_runtime.is_available():
                        return torch_xla.device()
                    if torch.cuda.is_available():
                        return torch.device("cuda")
                    if torch.backends.mps.is_available():
                        return torch.device("mps")
                    return torch.device("cpu")
                """
            },
        ),
        Example(
            """
            import torch
            if torch.cuda.is_available():
                device = 'cuda'
            elif torch.xpu.is_available():
                device = 'xpu'
            else:
                device = 'cpu'
            """,
            after="""
            import torch
            import tpu_runtime
            if tpu_runtime.is_available():
                device = '{device}'
            elif torch.cuda.is_available():
                device = 'cuda'
            elif torch.xpu.is_available():
                device = 'xpu'
            else:
                device = 'cpu'
            """,
        ),
        Example(
            """
            import torch
            import tpu_runtime
            if tpu_runtime.is_available():
                device = args.tpu
            elif torch.cuda.is_available():
                device = "cuda"
            elif torch.xpu.is_available():
                device = "xpu"
            """,
            says={3: "the check for a TPU comes first"},
        ),
        Example(
            """
            import torch
            if torch.xpu.is_available():
                name = "Arc"
            elif torch.backends.mps.is_available():
                name = "M2"
            else:
                name = "CPU"
            """,
        ),
    ),
)

OTHER = Rule(
    code="ACC002",
    name="other-accelerator",
    summary="code for an accelerator that this machine does not have",
    why="""A program that only runs on XPU, MPS, an NPU or Vulkan is read as a CUDA program. If it
knows several kinds, its CUDA code is migrated and its code for the others stays: under an `if` that
asks for them, a TPU machine never reaches it. What it does reach is reported. `torch.version.hip`,
which AMD's ROCm sets, is None on a TPU machine.""",
    safety=Safety.DISPLAY_ONLY,
    examples=(
        Example(
            """
            import torch
            if device.type == 'mps':
                torch.mps.empty_cache()
            """,
        ),
        Example(
            """
            import torch
            model.to("xpu")
            torch.xpu.synchronize()
            """,
            after="""
            import torch
            import tpu_runtime
            model.to("{device}")
            tpu_runtime.synchronize()
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                model.to("{device}")
                torch_xla.sync(wait=True)
                """
            },
        ),
        Example(
            """
            import torch
            is_rocm = torch.version.hip is not None
            """,
        ),
        Example(
            """
            import torch
            print(f"HIP {torch.version.hip}")
            """,
            says={2: "only shown"},
        ),
    ),
)

LIBRARY = Rule(
    code="ACC003",
    name="accelerator-library",
    summary="a library that brings another accelerator into PyTorch",
    why="""`intel_extension_for_pytorch`, `torch_npu` and similar packages are imported to make
PyTorch know a device. On a TPU machine they do nothing, so the import is removed.
`ipex.optimize(model)` returns a model that computes the same, so it is removed, too, unless it
converts to another dtype. Imports under `try`/`except` stay: they fail, and the program handles
that.""",
    examples=(
        Example(
            """
            import torch
            import intel_extension_for_pytorch as ipex
            model = model.to("xpu")
            model = ipex.optimize(model)
            """,
            after="""
            import torch
            model = model.to("{device}")
            """,
        ),
        Example(
            """
            try:
                import torch_npu
            except ImportError:
                torch_npu = None
            """,
        ),
        Example(
            """
            import torch
            import intel_extension_for_pytorch as ipex
            model = ipex.optimize(model, dtype=torch.bfloat16)
            """,
            says={3: "if it converts to a dtype, call `.to(dtype)`"},
        ),
        Example(
            """
            import torch
            import intel_extension_for_pytorch as ipex
            fast = ipex.optimize(model)
            """,
            says={3: "remove it"},
        ),
    ),
)


@LADDER.on("ladder", "device", node=ast.If)
def rung(ctx: Context, found: Construct, node: ast.If) -> Decision | None:
    if ctx.target.portable:
        return Keep("asks for one kind of device after another; the runtime chooses")
    picked = ladder(ctx.names, ctx.flow, node)
    if picked is None:
        return None
    available = ctx.code.runtime("is_available")
    if available is None:
        return ctx.code.lacks("torch.cuda.is_available")
    reason = "for other hardware; the check for a TPU comes first"
    if picked.has_tpu:
        return Keep(reason, leaves=picked.rungs)
    if ctx.flow.kind(picked.device) & Kind.DEVICE:
        word = device_object_word(ctx, picked.device)
        device, requires = word.code, word.requires
    else:
        device, requires = ctx.code.device_string(picked.device), ()
    before = ctx.source.code(picked.picks)[
        : ctx.source.span(picked.device)[0] - ctx.source.span(picked.picks)[0]
    ]
    edit = AddBranch(node, f"{available.code}()", f"{before}{device}")
    requires = (*requires, *available.requires)
    return Rewrite([edit], requires, note=reason, leaves=picked.rungs)


@OTHER.on("accelerator", *OTHERS)
def other(ctx: Context, found: Construct) -> Decision:
    asks = ctx.source.code(found.node).endswith(("available", "is_built"))
    if asks or is_guarded(ctx.names, found.node):
        return Keep("asked for first, and missing on a TPU machine")
    return Report(
        f"belongs to another accelerator ({found.key}), which is missing on a TPU machine"
    )


@OTHER.on("name", "torch.version.hip", "torch.version.cuda")
def version(ctx: Context, found: Construct) -> Decision | None:
    """ROCm is tested by its version; a CUDA version is a number that a build has to match."""
    match ctx.names.parent(found.node):
        case ast.FormattedValue() | ast.Call(func=ast.Name(id="print" | "str")):
            return Keep("None on a TPU machine, and only shown")
    if found.key == "torch.version.cuda":
        return None
    match ctx.names.parent(found.node):
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]) | ast.If() | ast.IfExp() | ast.BoolOp():
            return Keep(_NO_ROCM)
        case ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool")):
            return Keep(_NO_ROCM)
    return Keep("reached only with ROCm") if is_guarded(ctx.names, found.node) else Report(_NO_ROCM)


_NO_ROCM = "None on a TPU machine, as it is with CUDA"


@LIBRARY.on("accelerator library", *LIBRARIES)
def library(ctx: Context, found: Construct) -> Decision:
    names, node = ctx.names, found.node
    statement = names.statement(node)
    if is_optional(names, node, found.key):
        return Keep("the import fails, and the fallback is used")
    if statement is None or (isinstance(node, ast.alias) and len(statement.names) > 1):  # type: ignore[attr-defined]
        return Report(f"{found.key} is missing on a TPU machine; remove the import")
    bound = [a.asname or a.name.partition(".")[0] for a in statement.names]  # type: ignore[attr-defined]
    uses = [use for name in bound for use in names.uses(name, names.scope_of(statement))]
    calls = [names.statement(use) for use in uses]
    if all(isinstance(s, ast.stmt) and _does_nothing(ctx, s) for s in calls):
        return Rewrite([Delete(statement)])
    return Report(f"{found.key} is missing on a TPU machine; remove its uses first")


_OPTIMIZE = ("intel_extension_for_pytorch.optimize", "torch.cuda.optimize")


@LIBRARY.on("name", *_OPTIMIZE)
def optimize(ctx: Context, found: Construct) -> Decision:
    statement = ctx.names.statement(found.node)
    if statement is not None and _does_nothing(ctx, statement):
        return Rewrite([Delete(statement)])
    return Report(
        "belongs to Intel's extension: remove it; if it converts to a dtype, call `.to(dtype)`"
    )


@LIBRARY.on("name", "intel_extension_for_pytorch.*")
def of_library(ctx: Context, found: Construct) -> Decision:
    return Report("belongs to Intel's extension, which is missing on a TPU machine")


def _does_nothing(ctx: Context, statement: ast.stmt) -> bool:
    """`model = ipex.optimize(model)`, also with an optimizer: the arguments are returned
    unchanged."""
    match statement:
        case ast.Assign(targets=[target], value=ast.Call() as call):
            if ctx.names.qualified(call.func) not in _OPTIMIZE:
                return False
            given = [argument(call, 0, "model"), argument(call, 2, "optimizer")]
            kept = [dotted(x) for x in given if x is not None]
            elements = target.elts if isinstance(target, ast.Tuple) else [target]
            plain = {k.arg for k in call.keywords} <= {"model", "optimizer", "inplace", "level"}
            return plain and None not in kept and [dotted(x) for x in elements] == kept
    return False
