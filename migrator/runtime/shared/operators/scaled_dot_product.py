"""Attention as torch defines it, written out, so that XLA compiles it to one program."""

import math

import torch
import torch.nn.functional as F


def scaled_dot_product(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`F.scaled_dot_product_attention`; 0 for queries without any key to attend to."""
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    scores = (query * factor_of(query, scale)) @ key.transpose(
        -2, -1
    )  # first: a product of float16 may overflow
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError("scaled_dot_product_attention: both attn_mask and is_causal are set")
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    empty = None  # queries without any key to attend to
    if attn_mask is None:
        weights = scores.softmax(-1)
    elif attn_mask.dtype == torch.bool:
        if not is_causal:  # checked in the mask, which is smaller than the scores
            empty = ~attn_mask.any(-1, keepdim=True)
            attn_mask = attn_mask | empty
        weights = scores.masked_fill(~attn_mask, -math.inf).softmax(-1)
    else:
        weights = softmax(scores + attn_mask, -1)
    weights = weights.to(value.dtype)  # under autocast softmax gives float32
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    result = weights @ value
    return result if empty is None else result.masked_fill(empty, 0.0)


def factor_of(query: torch.Tensor, scale: float | None) -> float:
    """The factor for the scores."""
    return 1 / math.sqrt(query.size(-1)) if scale is None else scale


def softmax(scores: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Softmax with 0 for rows that are all -inf, and a gradient of 0 there."""
    empty = (scores == -math.inf).all(dim, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(dim, dtype).masked_fill(empty, 0.0)
