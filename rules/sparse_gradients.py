"""Sparse gradients of embeddings, which no target has."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Effort,
    Example,
    Keep,
    Report,
    Rewrite,
    Rule,
    Safety,
)

SPARSE = Rule(
    code="TRN006",
    name="sparse-gradients",
    summary="gradients of embeddings are dense on a TPU",
    why="""No target has sparse tensors, and `sparse=True` raises an error. Dense gradients have the
same numbers and take more memory. SparseAdam, which only takes sparse ones, is reported (TRN004).
""",
    effort=Effort.MINUTES,
    examples=(
        Example(
            """
            from torch import nn
            words = nn.Embedding(5000, 64, padding_idx=0, sparse=True).cuda()
            """,
            after="""
            from torch import nn
            words = nn.Embedding(5000, 64, padding_idx=0).to("{device}")
            """,
        ),
        Example(
            """
            from torch import nn
            words = nn.Embedding(5000, 64, sparse=args.sparse).cuda()
            """,
            after="""
            from torch import nn
            words = nn.Embedding(5000, 64, sparse=args.sparse).to("{device}")
            """,
            says={2: "it has to be False there"},
        ),
        Example(
            """
            from torch import nn
            words = nn.EmbeddingBag.from_pretrained(table, sparse=args.sparse)
            """,
            says={2: "it has to be False there"},
        ),
        Example(
            """
            from torch import nn
            words = nn.Embedding(5000, 64, **{"sparse": True}).cuda()
            """,
            after="""
            from torch import nn
            words = nn.Embedding(5000, 64, **{"sparse": True}).to("{device}")
            """,
            says={2: "it has to be False there"},
        ),
        Example(
            """
            import torch
            from mylib import Embedding
            words = Embedding(5000, 64, sparse=True)
            """,
        ),
    ),
)


@SPARSE.on("sparse", "gradients", node=ast.keyword)
def sparse_gradients(ctx: Context, found: Construct, node: ast.keyword) -> Decision:
    call = ctx.names.parent(node)
    assert isinstance(call, ast.Call)
    if ctx.file.is_without_device:
        return Keep("nothing here uses a device")
    if node.arg is None or not isinstance(node.value, ast.Constant):
        return Report("a TPU has no sparse gradients: it has to be False there")
    return Rewrite([EditCall(call, drop=[node])])


OPTIMIZER = Rule(
    code="TRN004",
    name="optimizer",
    summary="an optimizer that the target can't run",
    why="SparseAdam needs sparse gradients, which no target has.",
    safety=Safety.DISPLAY_ONLY,
    effort=Effort.HOURS,
    examples=(
        Example(
            """
            import torch
            opt = torch.optim.SparseAdam(table.parameters())
            """,
            says={2: "a TPU has no sparse gradients"},
        ),
        Example(
            """
            import torch
            kinds = {"dense": torch.optim.Adam, "sparse": torch.optim.SparseAdam}
            """,
            says={2: "use Adam, and sparse=False"},
        ),
    ),
)


@OPTIMIZER.on("name", "torch.optim.SparseAdam")
def sparse_adam(ctx: Context, found: Construct) -> Decision:
    return Report("a TPU has no sparse gradients: use Adam, and sparse=False in nn.Embedding")
