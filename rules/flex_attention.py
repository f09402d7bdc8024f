"""Attention whose kernel is compiled from a function of the program."""

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

FLEX = Rule(
    code="LIB006",
    name="flex-attention",
    summary="FlexAttention, which has kernels for CUDA and the CPU only",
    why="""`flex_attention` compiles a function that changes scores, or masks them. It raises
ValueError for tensors on a TPU. `torch.nn.functional.scaled_dot_product_attention` can do the
same: its `attn_mask` is the block mask's function at all positions, or, in floating point, what
is added to the scores.

On torch_tpu FlexAttention works, and stays.""",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    references=("https://pytorch.org/blog/flexattention/",),
    examples=(
        Example(
            """
            from torch.nn.attention.flex_attention import flex_attention


            def attend(q, k, v, score_mod):
                return flex_attention(q, k, v, score_mod)
            """,
        ),
        Example(
            """
            from torch.nn.functional import scaled_dot_product_attention
            def attend(q, k, v, mask):
                return scaled_dot_product_attention(q, k, v, attn_mask=mask)
            """,
        ),
        Example(
            """
            from torch.nn.attention.flex_attention import create_block_mask
            mask = create_block_mask(causal, None, None, 128, 128)
            """,
            says={2: "FlexAttention has no kernel for a TPU"},
        ),
        Example(
            """
            from torch.nn.attention import SDPBackend, sdpa_kernel
            with sdpa_kernel(SDPBackend.MATH):
                y = attend(q, k, v)
            """,
        ),
    ),
)


@FLEX.on("name", "torch.nn.attention.flex_attention.*")
def flex(ctx: Context, found: Construct) -> Decision:
    if ctx.api.flex_attention:
        return Keep("works there, without a kernel of its own")
    return Report(
        "FlexAttention has no kernel for a TPU; use scaled_dot_product_attention, with the mask as "
        "a tensor"
    )
