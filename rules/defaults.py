"""Defaults for new tensors: their device, their type."""

import ast

from migrator.rule_api import (
    RUNTIME,
    Construct,
    Context,
    Decision,
    Example,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
)
from migrator.rule_api.python import TENSOR_TYPE_DTYPES

DEFAULT = Rule(
    code="DEV004",
    name="default-device",
    summary="a process-wide default device or tensor type names CUDA",
    why="""torchax and torch_xla can be the default device (torchax through the runtime), but
`set_default_tensor_type` doesn't know their types. It sets a default device, a default dtype, and
what `torch.Tensor(…)` makes, which a default device doesn't change. So a function of the runtime
does all three, also where the file sets a CPU type again.""",
    examples=(
        Example(
            """
            import torch
            torch.set_default_device("cuda")
            """,
            after="""
            import torch
            torch.set_default_device("{device}")
            """,
        ),
        Example(
            """
            import torch
            torch.set_default_tensor_type("torch.cuda.FloatTensor")
            far = torch.Tensor([1e10])
            """,
            after="""
            import torch
            import tpu_runtime
            tpu_runtime.set_default_tensor_type(tpu_runtime.FloatTensor)
            far = torch.Tensor([1e10])
            """,
        ),
        Example(
            """
            import torch
            torch.set_default_tensor_type("torch.FloatTensor")
            """,
        ),
        Example(
            """
            import torch
            torch.set_default_device("cpu")
            """,
            says={2: "names the CPU"},
        ),
        Example(
            """
            import torch
            torch.set_default_tensor_type(args.type)
            """,
            says={2: "puts every new tensor on CUDA"},
        ),
    ),
    moves_to_device=True,
)


@DEFAULT.on("name", "torch.set_default_device")
def default_device(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    device = argument(call, 0, "device") if call else None
    if device is None:
        return Report("torch.set_default_device itself is passed on")
    if ctx.flow.kind(device) == Kind.CPU:
        return Keep("names the CPU")
    if ctx.flow.kind(device) & Kind.DEVICE_STRING:
        return Rewrite([Replace(device, ctx.code.device_string(device))])
    return Keep("takes the target's device")


@DEFAULT.on("name", "torch.set_default_tensor_type")
def default_tensor_type(ctx: Context, found: Construct) -> Decision:
    settings = [ctx.names.call_of(c.node) for c in ctx.constructs if c.key == found.key]
    types = [name for call in settings for name in _default_types(ctx, call)]
    if not any(name == "" or name.startswith("torch.cuda.") for name in types):
        return Keep("no CUDA type")
    call = ctx.names.call_of(found.node)
    names = _default_types(ctx, call)
    dtypes = {TENSOR_TYPE_DTYPES.get(name.rpartition(".")[2]) for name in names}
    kind = argument(call, 0, "t") if call is not None else None
    if call is None or kind is None or None in dtypes:
        reason = "puts every new tensor on CUDA; use torch.set_default_device and _dtype"
        return Report(reason, whole=call)
    if not dtypes <= _FLOATING:
        return Report("PyTorch takes floating types here", whole=call)
    word, (torch, requires) = ctx.code.runtime("set_default_tensor_type"), ctx.code.torch()
    if word is None:
        return Report(
            f"{ctx.target.name} has no tensor types; use torch.set_default_device and _dtype",
            whole=call,
        )
    places = [RUNTIME if name.startswith("torch.cuda.") else torch for name in names]
    types = [
        f"{place}.{name.rpartition('.')[2]}" for place, name in zip(places, names, strict=True)
    ]
    text, holes = types[0], {}
    if isinstance(kind, ast.IfExp):
        text, holes = f"{types[0]} if {{test}} else {types[1]}", {"test": kind.test}
    spelled = requires if torch in places else ()
    return Rewrite([Replace(call, f"{word.code}({text})", holes)], (*word.requires, *spelled))


_FLOATING = {"float16", "bfloat16", "float32", "float64"}


def _default_types(ctx: Context, call: ast.Call | None) -> list[str]:
    """`torch.cuda.FloatTensor`, as a name or a string, or two of them; "" if it is computed."""
    kind = argument(call, 0, "t") if call is not None else None
    found = []
    for part in [kind.body, kind.orelse] if isinstance(kind, ast.IfExp) else [kind]:
        named = str(part.value) if isinstance(part, ast.Constant) else ""
        if part is not None and not named:
            named = ctx.names.qualified(part) or ""
        found.append(named)
    return found
