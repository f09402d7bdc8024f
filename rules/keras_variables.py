"""Environment variables that TensorFlow reads on a GPU, and XLA everywhere."""

import ast

from migrator.rule_api import Construct, Context, Decision, Example, Keep, Report, Rule, Safety
from migrator.rule_api.texts import HIDES

VARIABLE = Rule(
    code="KER012",
    name="gpu-variable",
    summary="variables for GPUs stay, and change nothing",
    why="""TensorFlow reads them only on a GPU. `CUDA_VISIBLE_DEVICES` doesn't hide a TPU: a
program that ran on the CPU because it hid all GPUs runs on the TPU now.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    examples=(
        Example(
            """
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            import keras
            """,
        ),
        Example(
            """
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
            import keras
            """,
            says={2: "hides all GPUs, and no TPU"},
        ),
        Example(
            """
            import os
            os.environ["XLA_FLAGS"] = "--xla_dump_to=/tmp/xla"
            import keras
            """,
            says={2: "is read on a TPU, too"},
        ),
    ),
)
_OF_GPUS = (
    "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT",
    "TF_CUDNN_DETERMINISTIC", "TF_CUDNN_USE_AUTOTUNE", "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32",
)  # fmt: skip


@VARIABLE.on("variable", *_OF_GPUS)
def variable(ctx: Context, found: Construct) -> Decision | None:
    return Keep("is read only on a GPU, and changes nothing on a TPU")


@VARIABLE.on("variable", "CUDA_VISIBLE_DEVICES")
def visible(ctx: Context, found: Construct) -> Decision | None:
    match ctx.names.parent(found.node):
        case ast.Subscript(ctx=ast.Store()) as place:
            above = ctx.names.parent(place)
            value = above.value if isinstance(above, ast.Assign) else None
        case ast.Call(func=ast.Attribute(attr="setdefault" | "putenv"), args=[_, value]):
            pass
        case _:
            return Report("is not set on a TPU machine")
    if isinstance(value, ast.Constant) and value.value in ("", "-1"):
        return Report(HIDES)
    return Keep("chooses GPUs; no effect on a TPU")


@VARIABLE.on("variable", "XLA_FLAGS", "TF_XLA_FLAGS")
def flags(ctx: Context, found: Construct) -> Decision | None:
    place = ctx.names.parent(found.node)
    above = ctx.names.parent(place) if place is not None else None
    value = above.value if isinstance(above, ast.Assign) else None
    if found.key == "TF_XLA_FLAGS" and ctx.api.keras_backend:
        return Keep("only TensorFlow reads it")
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        if all(flag.startswith("--xla_gpu_") for flag in value.value.split()):
            return Keep("sets what XLA does for GPUs, and changes nothing on a TPU")
    return Report("is read on a TPU, too: remove what a TPU should not get, or unset it")
