"""The functions of flash_attn and xformers, on torch's attention: their kernels need CUDA.

Both use (batch, tokens, heads, dim), torch (batch, heads, tokens, dim). With more keys than
queries, flash_attn's causal mask aligns the last query with the last key, torch's the first ones.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Window = tuple[int, int]
_EVERYWHERE = (-1, -1)


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYWHERE,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor:
    """`flash_attn.flash_attn_func`; queries may have a multiple of the keys' heads."""
    _refuse(softcap=softcap, alibi_slopes=alibi_slopes, return_attn_probs=return_attn_probs)
    queries, keys = q.shape[1], k.shape[1]
    left, right = _limits(causal, window_size)
    mask = None
    if right == 0 and left is None and queries == keys:
        causal = True  # needs no mask
    else:
        causal = False
        if left is not None or (right is not None and right < queries - 1):
            ahead = _to_end(keys, k) - _to_end(queries, q)[:, None]
            mask = _may_attend(ahead, left, right)
    return _attend(q, k, v, mask, dropout_p, causal, softmax_scale)


def flash_attn_qkvpacked_func(qkv: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`flash_attn.flash_attn_qkvpacked_func`; ``qkv``: (batch, tokens, 3, heads, dim)."""
    q, k, v = qkv.unbind(-3)
    return flash_attn_func(q, k, v, *args, **kwargs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`flash_attn.flash_attn_kvpacked_func`; ``kv``: (batch, tokens, 2, heads, dim)."""
    k, v = kv.unbind(-3)
    return flash_attn_func(q, k, v, *args, **kwargs)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYWHERE,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Tensor:
    """`flash_attn.flash_attn_varlen_func`: concatenated sequences, (tokens, heads, dim).

    A mask separates them, so time and memory grow with the square of the total length.
    """
    _refuse(
        softcap=softcap, alibi_slopes=alibi_slopes, return_attn_probs=return_attn_probs,
        block_table=block_table,
    )  # fmt: skip
    of_query, query_to_end = _sequences(q, cu_seqlens_q)
    of_key, key_to_end = _sequences(k, cu_seqlens_k)
    ahead = key_to_end - query_to_end[:, None]
    mask = (of_query[:, None] == of_key) & _may_attend(ahead, *_limits(causal, window_size))
    packed = q[None], k[None], v[None]
    return _attend(*packed, mask, dropout_p, False, softmax_scale).squeeze(0)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *args: Any, **kwargs: Any
) -> Tensor:
    """`flash_attn.flash_attn_varlen_qkvpacked_func`; ``qkv``: (tokens, 3, heads, dim)."""
    q, k, v = qkv.unbind(-3)
    lengths = cu_seqlens, cu_seqlens, max_seqlen, max_seqlen
    return flash_attn_varlen_func(q, k, v, *lengths, *args, **kwargs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`flash_attn.flash_attn_varlen_kvpacked_func`; ``kv``: (tokens, 2, heads, dim)."""
    k, v = kv.unbind(-3)
    return flash_attn_varlen_func(q, k, v, *args, **kwargs)


class LowerTriangularMask:
    """`xformers.ops.LowerTriangularMask`: the first query sees the first key."""


def memory_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | LowerTriangularMask | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
) -> Tensor:
    """`xformers.ops.memory_efficient_attention` of (batch, tokens, heads, dim).

    Also of (batch, tokens, dim) and (batch, tokens, groups, heads, dim). ``op``, the choice of a
    kernel, is ignored.
    """
    causal = isinstance(attn_bias, LowerTriangularMask)
    bias = attn_bias if isinstance(attn_bias, Tensor) else None
    if (bias is None and attn_bias is not None and not causal) or (
        bias is not None and bias.dtype == torch.bool
    ):
        kind = type(attn_bias).__name__ if bias is None else "tensor of bool"
        raise NotImplementedError(
            f"memory_efficient_attention: attn_bias is a {kind}; here it may be a tensor of "
            "numbers, LowerTriangularMask() or None"
        )
    shape = (*query.shape[:-1], value.shape[-1])
    if query.dim() == 3:
        query, key, value = (x.unsqueeze(2) for x in (query, key, value))
        bias = bias.unsqueeze(1) if bias is not None and bias.dim() == 3 else bias
    elif query.dim() == 5:
        query, key, value = (x.flatten(2, 3) for x in (query, key, value))
        bias = bias.flatten(1, 2) if bias is not None and bias.dim() == 5 else bias
    if bias is not None:
        bias = bias.to(query.dtype)
    return _attend(query, key, value, bias, p, causal, scale).reshape(shape)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> Tensor:
    """torch's attention, for (batch, tokens, heads, dim)."""
    grouped = {"enable_gqa": True} if q.shape[2] != k.shape[2] else {}
    result = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, dropout_p=dropout,
        is_causal=causal, scale=scale, **grouped,
    )  # fmt: skip
    return result.transpose(1, 2).contiguous()  # so that `view` works on it


def _limits(causal: bool, window: Window) -> tuple[int | None, int | None]:
    """How many keys before and after it a query attends to; None for all."""
    left, right = (None if size < 0 else size for size in window)
    return left, 0 if causal else right


def _may_attend(ahead: Tensor, left: int | None, right: int | None) -> Tensor:
    """Whether a query may attend to a key at this distance."""
    seen = torch.ones_like(ahead, dtype=torch.bool)
    if left is not None:
        seen = seen & (ahead >= -left)
    return seen if right is None else seen & (ahead <= right)


def _to_end(tokens: int, like: Tensor) -> Tensor:
    """The position of each token, counted from the end: -tokens to -1."""
    return torch.arange(-tokens, 0, device=like.device)


def _sequences(tokens: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """For each token: the number of its sequence, and its position, counted from the end of that.

    Tokens after the last sequence, as in a buffer of fixed length, belong to none.
    """
    ends = starts.to(tokens.device)[1:]
    place = torch.arange(tokens.shape[0], device=tokens.device)
    number = (place[:, None] >= ends).sum(1)
    return number, place - ends[number.clamp(max=ends.shape[0] - 1)]


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, Tensor) or value:
            raise NotImplementedError(
                f"flash_attn's {name} has no counterpart in torch's attention; write it out"
            )
