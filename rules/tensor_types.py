"""CUDA's tensor types, as constructors and as types."""

import ast

from migrator.rule_api import Construct, Context, Decision, Example, Replace, Report, Rewrite, Rule
from migrator.rule_api.python import TENSOR_TYPE_DTYPES as DTYPES

TENSOR_TYPE = Rule(
    code="MOV003",
    name="cuda-tensor-type",
    summary="torch.cuda.FloatTensor and similar types, as constructors and as types",
    why="""torch.cuda's legacy types raise an error without CUDA. The runtime has types of the same
names that build the tensor as torch does, then move it. `.type(T)` becomes `.to(device, dtype)` if
T is written out, otherwise a call that takes both kinds of types.""",
    examples=(
        Example(
            """
            import torch
            x = torch.cuda.FloatTensor(2, 3).fill_(0)
            """,
            after="""
            import torch
            import tpu_runtime
            x = tpu_runtime.FloatTensor(2, 3).fill_(0)
            """,
        ),
        Example(
            """
            import torch
            y = x.type(torch.cuda.LongTensor)
            """,
            after="""
            import torch
            y = x.to("{device}", torch.int64)
            """,
        ),
        Example(
            """
            import torch
            T = torch.cuda.FloatTensor if cuda else torch.FloatTensor
            y = x.type(T)
            """,
            after="""
            import torch
            import tpu_runtime
            T = tpu_runtime.FloatTensor if cuda else torch.FloatTensor
            y = tpu_runtime.cast(x, T)
            """,
        ),
        Example(
            """
            import torch
            if x.type() == "torch.cuda.FloatTensor":
                print("on a GPU")
            """,
            says={2: "the name of a CUDA tensor type"},
        ),
        Example(
            """
            import torch
            y = x.type(torch.float16)
            """,
        ),
    ),
    moves_to_device=True,
)


@TENSOR_TYPE.on("name", *(f"torch.cuda.{name}" for name in DTYPES), node=ast.expr)
def tensor_type(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    name = found.key.rpartition(".")[2]
    word = ctx.code.runtime(name)
    if word is None:
        return ctx.code.lacks(found.key)
    return Rewrite([Replace(node, word.code)], word.requires)


@TENSOR_TYPE.on("method", "type", node=ast.Attribute)
def type_method(ctx: Context, found: Construct, node: ast.Attribute) -> Decision:
    call = ctx.names.call_of(node)
    assert call is not None
    kind = call.args[0]
    name = ctx.names.qualified(kind) or ""
    if isinstance(kind, ast.Constant):
        name = str(kind.value)
    dtype = DTYPES.get(name.rpartition(".")[2]) if name.startswith("torch.cuda.") else None
    if dtype is not None:
        torch, requires = ctx.code.torch()
        text = f"{{x}}.to({ctx.code.device(kind)}, {torch}.{dtype})"
        return Rewrite([Replace(call, text, {"x": node.value})], requires)
    holes, cast = {"x": node.value, "kind": kind}, ctx.code.runtime("cast")
    if cast is None:
        return Report("takes a tensor type, which may be one of CUDA's; use `.to` with a dtype")
    return Rewrite([Replace(call, f"{cast.code}({{x}}, {{kind}})", holes)], cast.requires)


@TENSOR_TYPE.on("tensor_type", "torch.cuda.*")
def type_string(ctx: Context, found: Construct) -> Decision:
    return Report("the name of a CUDA tensor type; compare `.dtype` and `.device.type` instead")
