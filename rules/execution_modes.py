"""Modes of execution: inference mode, torch.accelerator."""

import ast

from migrator.rule_api import (
    MIRRORED,
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    Unwrap,
    argument,
    dotted,
)
from migrator.rule_api.cuda_calls import counterpart, removal
from migrator.rule_api.device_objects import device_object_word
from migrator.rule_api.devices import with_older_torch
from migrator.rule_api.gpu_only_code import not_on_tpu
from migrator.rule_api.python import ANY_DEVICE

FAMILY = Family("RUN", "Modes of execution", 60)

INFERENCE = Rule(
    code="RUN001",
    name="inference-mode",
    summary="inference_mode fails on the targets; no_grad computes the same",
    why="""Inference tensors have no version counter, which the targets need: torch_xla raises
"Cannot set version_counter for inference tensor", torchax a TypeError, and torch_tpu's compiler
refuses them. `no_grad` gives the same numbers.""",
    examples=(
        Example(
            """
            import torch

            @torch.inference_mode()
            def run(x):
                return model(x)
            """,
            after="""
            import torch

            @torch.no_grad()
            def run(x):
                return model(x)
            """,
        ),
        Example(
            """
            import torch

            with torch.inference_mode(not train):
                y = model(x)
            """,
            says={3: "with a variable mode"},
        ),
        Example(
            """
            import torch
            y = model(x)
            if x.is_inference():
                y = y.clone()
            """,
        ),
    ),
)

ACCELERATOR = Rule(
    code="RUN003",
    name="torch-accelerator",
    summary="torch.accelerator does not know the target; the target's own functions do the same",
    why="""Device-agnostic code asks `torch.accelerator`, which finds no accelerator with torchax or
torch_xla, so the script would silently run on the CPU.""",
    examples=(
        Example(
            """
            import torch
            device = torch.accelerator.current_accelerator()
            """,
            after="""
            import torch
            device = torch.device("{device}")
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                device = torch_xla.device()
                """
            },
        ),
        Example(
            """
            import torch
            torch.accelerator.synchronize()
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
            if hasattr(torch.accelerator, "memory"):
                print("PyTorch 2.9 or later")
            """,
            says={2: "only looked at"},
        ),
        Example(
            """
            import torch
            wait = torch.accelerator.current_accelerator
            """,
            says={2: "does not know the target"},
        ),
        Example(
            """
            import torch
            getattr(torch.accelerator, name)()
            """,
            says={2: "torch.accelerator does not know the target"},
        ),
    ),
)

_DELETED = ("set_device_index", "set_device_idx", "empty_cache", "set_stream",
            "reset_accumulated_memory_stats")  # fmt: skip
_RENAMED = {"current_device_index": "current_device", "current_device_idx": "current_device"}


@INFERENCE.on("name", "torch.inference_mode", node=ast.expr)
def inference_mode(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    torch, requires = ctx.code.torch()
    call = ctx.names.call_of(node)
    if call is None:
        return Rewrite([Replace(node, f"{torch}.no_grad")], requires)
    mode = argument(call, 0, "mode")
    is_on = isinstance(mode, ast.Constant) and mode.value is True
    if (mode is None or is_on) and (double := _beside_no_grad(ctx, call)) is not None:
        return double
    if mode is None:
        return Rewrite([Replace(node, f"{torch}.no_grad")], requires)
    if is_on:
        return Rewrite([Replace(call, f"{torch}.no_grad()")], requires)
    return Report("inference_mode with a variable mode; use torch.set_grad_enabled(not mode)")


def _beside_no_grad(ctx: Context, call: ast.Call) -> Rewrite | None:
    """`with torch.no_grad(), torch.inference_mode():` turns gradients off twice."""
    item = ctx.names.parent(call)
    block = (
        ctx.names.parent(item)
        if isinstance(item, ast.withitem) and not item.optional_vars
        else None
    )
    if not isinstance(block, ast.With | ast.AsyncWith):
        return None
    others = [each.context_expr for each in block.items if each is not item]
    same = any(
        isinstance(each, ast.Call) and ctx.names.qualified(each.func) == "torch.no_grad"
        for each in others
    )
    return Rewrite([Unwrap(block, [item])]) if same and isinstance(item, ast.withitem) else None


@ACCELERATOR.on("name", "torch.accelerator*", node=ast.expr)
def accelerator(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if ctx.api.device_names:
        if found.key.endswith((".set_device_index", ".set_device_idx")):
            return not_on_tpu(ctx, node)
        return Keep("knows the target's device")
    name = found.key.removeprefix("torch.accelerator").lstrip(".")
    call = ctx.names.call_of(node)
    if name == "current_accelerator" and call is not None:
        return _current(ctx, call)
    if name in _DELETED:
        return removal(ctx, found)
    if name == "memory.empty_cache":
        return removal(ctx, found)
    name = _RENAMED.get(name, name).removeprefix("memory.")
    if name in MIRRORED:
        return counterpart(ctx, node, name)
    taken = ctx.names.parent(node)
    if not name and isinstance(taken, ast.Call) and dotted(taken.func) != "getattr":
        return Keep("only looked at")
    return Report(f"{found.key} does not know the target")


def _current(ctx: Context, call: ast.Call) -> Decision:
    """`current_accelerator()`, also as `….type` and `… if … else …`, `… or torch.device("cpu")`."""
    parent = ctx.names.parent(call)
    if isinstance(parent, ast.Attribute) and parent.attr == "type":
        whole = _without_older_torch(ctx, parent)
        return Rewrite([Replace(whole, ctx.code.device_string(call))])
    word = device_object_word(ctx, call)
    return Rewrite([Replace(_without_older_torch(ctx, call), word.code)], word.requires)


def _without_older_torch(ctx: Context, device: ast.expr) -> ast.expr:
    """The choice between a device and a fallback for torch versions without `torch.accelerator`."""
    whole = with_older_torch(ctx.names, device)
    is_device = isinstance(whole, ast.IfExp) and (
        ctx.flow.kind(whole.orelse) & (ANY_DEVICE | Kind.CPU)
    )
    return whole if is_device and ctx.values.effects.none(whole) else device
