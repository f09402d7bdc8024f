"""Joint attention: flash_attn where it is installed and fits, else PyTorch's own."""

import torch
import torch.nn.functional as F

try:
    from flash_attn import flash_attn_varlen_func
except ImportError:
    flash_attn_varlen_func = None


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Attention of (B, heads, tokens, head_dim) with a key mask (B, 1, 1, tokens), True: attend.

    Returns (B, tokens, heads · head_dim).
    """
    if flash_attn_varlen_func is not None and q.dtype in (torch.float16, torch.bfloat16):
        return flash_attention(q, k, v, mask)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).flatten(2)


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """The same, with the padded keys taken out (flash_attn knows no masks)."""
    batch, heads, tokens, dim = q.shape
    keep = mask[:, 0, 0].expand(batch, tokens)
    lengths = keep.sum(1, dtype=torch.int32)
    ends = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    starts = torch.arange(0, batch * tokens + 1, tokens, dtype=torch.int32, device=q.device)
    out = flash_attn_varlen_func(
        q.transpose(1, 2).reshape(batch * tokens, heads, dim),
        k.transpose(1, 2)[keep],
        v.transpose(1, 2)[keep],
        starts,
        ends,
        tokens,
        int(lengths.max()),
    )
    return out.view(batch, tokens, heads * dim)
