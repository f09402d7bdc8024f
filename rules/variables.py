"""Environment variables that CUDA and NCCL read."""

import ast

from migrator.rule_api import Construct, Context, Decision, Example, Keep, Report, Rule, Safety
from migrator.rule_api.devices import VISIBLE
from migrator.rule_api.texts import HIDES

VARIABLE = Rule(
    code="CUD007",
    name="cuda-visible-devices",
    summary="CUDA_VISIBLE_DEVICES chooses GPUs; it has no effect on a TPU",
    why="""Setting it has no effect, and stays. A TPU machine has no value to read. If it hides all
GPUs (`""`, `"-1"`), a program with code for GPUs ran on the CPU, and now runs on the TPU; to avoid
that, name the CPU as the device.""",
    safety=Safety.DISPLAY_ONLY,
    examples=(
        Example(
            """
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            x = x.cuda()
            """,
            after="""
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            x = x.to("{device}")
            """,
        ),
        Example(
            """
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
            import torch
            x = x.cuda()
            """,
            after="""
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
            import torch
            x = x.to("{device}")
            """,
            says={2: "hides all GPUs, and no TPU"},
        ),
        Example(
            """
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # and nothing asks for a device
            import torch
            """,
        ),
        Example(
            """
            import os
            import torch
            count = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
            """,
            says={3: "is not set on a TPU machine"},
        ),
    ),
)


@VARIABLE.on("variable", VISIBLE)
def variable(ctx: Context, found: Construct) -> Decision:
    above = ctx.names.parent(found.node)
    value: ast.expr | None = None
    match above, ctx.names.parent(above) if above is not None else None:
        case _ if isinstance(found.node, ast.keyword):
            value = found.node.value
        case ast.Dict(keys=keys, values=values), _ if found.node in keys:
            value = values[keys.index(found.node)]
        case ast.Subscript(ctx=ast.Store()), ast.Assign(value=value):
            pass
        case ast.Call(func=ast.Attribute(attr="setdefault" | "putenv"), args=[_, value]), _:
            pass
        case (ast.Subscript(ctx=ast.Store() | ast.Del()), _) | (
            ast.Call(func=ast.Attribute(attr="pop" | "unsetenv")), ast.Expr()
        ):  # fmt: skip
            return Keep("chooses GPUs; no effect on a TPU")
        case _:
            return Report("is not set on a TPU machine")
    hides = isinstance(value, ast.Constant) and value.value in ("", "-1")
    if hides and ctx.file.is_without_device:
        return Keep("hides all GPUs from a program that uses none")
    if hides:
        return Report(HIDES)
    return Keep("chooses GPUs; no effect on a TPU")
