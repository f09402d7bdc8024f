"""Operators that a target does not have at all."""

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Effort,
    Example,
    Keep,
    Report,
    Rule,
    Safety,
)

ABSENT = Rule(
    code="TEN002",
    name="absent-operator",
    summary="an operator that the target lacks, and that can't run on the CPU instead",
    why="""Most operators that a target lacks run on the CPU instead. These return a kind of
tensor that the target doesn't have: sparse, nested, quantized, or of a class of one's own that
dispatches each operator to its parts (`_make_wrapper_subclass`), as torchao's weights do. Some
internal products (`torch._grouped_mm`) have kernels for GPUs alone.""",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch
            y = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
            """,
        ),
        Example(
            """
            import torch
            y = torch._cslt_compress(x)
            """,
            says={2: "has no _cslt_compress"},
        ),
        Example(
            """
            import torch
            y = x.to_sparse()
            """,
        ),
        Example(
            """
            import torch
            y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
            """,
        ),
        Example(
            """
            import torch


            class Packed(torch.Tensor):
                @staticmethod
                def __new__(cls, data):
                    return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)
            """,
        ),
    ),
)
_CLASS = "_make_wrapper_subclass"
_FUNCTIONS = (
    "quantize_per_tensor", "quantize_per_channel", "sparse.mm", "sparse.addmm", "sparse.softmax",
    "sparse.log_softmax", "nested.nested_tensor", "nested.as_nested_tensor", "_grouped_mm",
    "_int_mm", "_scaled_grouped_mm", "_cslt_compress", "_cslt_sparse_mm",
)  # fmt: skip
_METHODS = (
    "to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr",
    "to_sparse_bsc",
)  # fmt: skip


@ABSENT.on("name", *(f"torch.{name}" for name in _FUNCTIONS))
@ABSENT.on("name", *(f"torch.Tensor.{name}" for name in _METHODS))
@ABSENT.on("name", f"torch.Tensor.{_CLASS}")
@ABSENT.on("method", *_METHODS)
def absent(ctx: Context, found: Construct) -> Decision:
    name = found.key.removeprefix("torch.").removeprefix("Tensor.")
    if name not in ctx.api.absent:
        return Keep("the target has it")
    if name == _CLASS:
        return Report(
            f"{ctx.target.name} can't dispatch operators of a class of tensors to its parts: hold "
            "the parts in a module"
        )
    return Report(
        f"{ctx.target.name} has no {name}: compute it on the CPU, or without such tensors"
    )
