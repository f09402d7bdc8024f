"""Types with 16 and 64 bits, and their replacements on a TPU."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Keep,
    Rewrite,
    Rule,
    Safety,
    argument,
)

HALF = Rule(
    code="PRE005",
    name="half",
    summary="float16 works on a TPU, but without hardware for it; bfloat16 is the native type",
    why="""torchax and torch_xla accept float16 tensors, but the compiler converts them for every
product, which is slow. bfloat16 rounds more coarsely, so this is advice, and the change is only
made with `--unsafe`.""",
    safety=Safety.UNSAFE,
    examples=(
        Example(
            """
            import torch
            model = model.half()
            """,
            after="""
            import torch
            model = model.bfloat16()
            """,
            unsafe=True,
        ),
        Example(
            """
            import torch
            model = model.half()
            """,
        ),
        Example(
            """
            import torch
            small = x.cpu().half()
            """,
            unsafe=True,
            says={2: "is on the CPU"},
        ),
        Example(
            """
            import torch
            small = x.half().cpu().numpy()
            """,
            unsafe=True,
            says={2: "NumPy has no bfloat16"},
        ),
        Example(
            """
            import torch
            x = x.half()
            small = x.cpu()
            print(small.numpy())
            """,
            unsafe=True,
            says={2: "NumPy has no bfloat16"},
        ),
    ),
)

DTYPE = Rule(
    code="PRE006",
    name="default-dtype",
    summary="a bfloat16 default makes precision-sensitive code wrong",
    why="""bfloat16 keeps 8 bits of a number. On the image of the app image_ops, the largest
difference between a resize and OpenCV's grows 1.9 times under a bfloat16 default if torchvision
computes in float32 inside, and 324 times with torch's own interpolate on torch_xla, which rounds
coordinates as well. Another port reports 218 times, on a TPU v6e. Code that needs precision stays
float32.""",
    safety=Safety.DISPLAY_ONLY,
    examples=(
        Example(
            """
            import torch
            torch.set_default_dtype(torch.bfloat16)
            """,
        ),
        Example(
            """
            import torch
            torch.set_default_dtype(torch.float32)
            """,
            says={2: "works on the target"},
        ),
        Example(
            """
            import torch
            x = torch.zeros(2, dtype=torch.bfloat16)
            """,
        ),
    ),
)


@HALF.on("method", "half")
def half(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    assert call is not None and isinstance(call.func, ast.Attribute)
    if ctx.training.hot.is_on_host(call.func.value):
        return Keep("is on the CPU")
    if _is_for_numpy(ctx, call):
        return Keep("becomes an array, and NumPy has no bfloat16")
    return Rewrite(
        [EditCall(call, method="bfloat16")],
        note="float16 has no hardware on a TPU; bfloat16 rounds to 8 bits instead of 11",
        works=True,
    )


def _is_for_numpy(ctx: Context, value: ast.expr, depth: int = 0) -> bool:
    """`x.half().cpu().numpy()`, `np.asarray(x.half())`, also by way of a variable."""
    match ctx.names.parent(value):
        case ast.Attribute(attr="numpy"):
            return True
        case ast.Attribute(attr=attr) as method if attr not in ("float", "double"):
            call = ctx.names.call_of(method)
            return call is not None and _is_for_numpy(ctx, call, depth)
        case ast.Call(func=func, args=[first, *_]) if first is value:
            return (ctx.names.qualified(func) or "").startswith("numpy.")
        case ast.Assign(targets=[ast.Name() as target]) if depth < _DEPTH:
            uses = [use for use in ctx.names.loads(target) if use is not value]
            return any(_is_for_numpy(ctx, use, depth + 1) for use in uses)
    return False


_DEPTH = 3  # of variables that hold a value one after another


@HALF.on("name", "torch.Tensor.half", "torch.nn.Module.half")
def unbound_half(ctx: Context, found: Construct) -> Decision:
    return Keep(
        "works as it stands",
        advice="float16 has no hardware on a TPU; bfloat16 is its 16-bit type",
    )


@DTYPE.on("name", "torch.set_default_dtype")
def default_dtype(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    name = ctx.names.qualified(argument(call, 0, "d") or found.node) if call else None
    if name in ("torch.bfloat16", "torch.float16", "torch.half"):
        return Keep(
            "works on the target",
            advice="a 16-bit default makes precision-sensitive code wrong: the error of an image "
            "resize grew 1.9 to 324 times (tpu-migrate explain PRE006); keep such code in float32",
        )
    if name in ("torch.float64", "torch.double"):
        return Keep(
            "works on the target",
            advice=f"{ctx.api.float64}, and no TPU has it in hardware",
        )
    return Keep("works on the target")
