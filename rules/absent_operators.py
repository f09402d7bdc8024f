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
tensor that the target doesn't have: sparse, or quantized.""",
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
            y = x.to_sparse()
            """,
        ),
        Example(
            """
            import torch
            y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
            """,
        ),
    ),
)
_FUNCTIONS = (
    "quantize_per_tensor", "quantize_per_channel", "sparse.mm", "sparse.addmm", "sparse.softmax",
    "sparse.log_softmax",
)  # fmt: skip
_METHODS = (
    "to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr",
    "to_sparse_bsc",
)  # fmt: skip


@ABSENT.on("name", *(f"torch.{name}" for name in _FUNCTIONS))
@ABSENT.on("name", *(f"torch.Tensor.{name}" for name in _METHODS))
@ABSENT.on("method", *_METHODS)
def absent(ctx: Context, found: Construct) -> Decision:
    name = found.key.removeprefix("torch.").removeprefix("Tensor.")
    if name not in ctx.words.absent:
        return Keep("the target has it")
    return Report(
        f"{ctx.target.name} has no {name}: compute it on the CPU, or without such tensors"
    )
