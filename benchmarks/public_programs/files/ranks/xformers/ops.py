"""A stand-in for xformers, on tensors of any device: what dinov2 asks of it, written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BlockDiagonalMask:
    """Sequences of some lengths behind one another: each sees itself alone."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self._batch_sizes: list[int] | None = None

    @classmethod
    def from_seqlens(cls, lengths: list[int]) -> BlockDiagonalMask:
        return cls(lengths)

    @classmethod
    def from_tensor_list(cls, tensors: list[Tensor]) -> tuple[BlockDiagonalMask, Tensor]:
        """Of (sequences, tokens, …) each; with all their tokens as (1, tokens, …)."""
        mask = cls([t.shape[1] for t in tensors for _ in range(t.shape[0])])
        mask._batch_sizes = [t.shape[0] for t in tensors]
        return mask, torch.cat([t.reshape(1, -1, *t.shape[2:]) for t in tensors], dim=1)

    def split(self, tensor: Tensor) -> list[Tensor]:
        """(1, all tokens, width) to one (sequences, tokens, width) for each batch."""
        sizes = self._batch_sizes or [1] * len(self.lengths)
        out, sequence, start = [], 0, 0
        for size in sizes:
            length = self.lengths[sequence]
            part = tensor[:, start : start + size * length]
            out.append(part.reshape(size, length, *tensor.shape[2:]))
            sequence, start = sequence + size, start + size * length
        return out

    def allowed(self, device: torch.device) -> Tensor:
        number = torch.repeat_interleave(
            torch.arange(len(self.lengths)), torch.tensor(self.lengths)
        ).to(device)
        return number[:, None] == number[None, :]


class fmha:
    BlockDiagonalMask = BlockDiagonalMask


def memory_efficient_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_bias: BlockDiagonalMask | None = None
) -> Tensor:
    """Attention of (batch, tokens, heads, size)."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    mask = attn_bias.allowed(q.device) if attn_bias is not None else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def unbind(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    return torch.unbind(x, dim)


def index_select_cat(sources: list[Tensor], indices: list[Tensor]) -> Tensor:
    return torch.cat([s[i].flatten() for s, i in zip(sources, indices, strict=True)])


def scaled_index_add(
    x: Tensor, index: Tensor, source: Tensor, scaling: Tensor | None = None, alpha: float = 1.0
) -> Tensor:
    if scaling is not None:
        source = source * scaling
    return torch.index_add(x, 0, index, source, alpha=alpha)


def cross_entropy(student: Tensor, teacher: Tensor, temperature: float, **_: Any) -> Tensor:
    """The loss of each row, as dinov2 writes it where xformers is not there, negated."""
    return -torch.sum(teacher * F.log_softmax(student / temperature, dim=-1), dim=-1)


class SwiGLU(nn.Module):
    def __init__(
        self, in_features: int, hidden_features: int, out_features: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.w12 = nn.Linear(in_features, 2 * hidden_features, bias=bias)
        self.w3 = nn.Linear(hidden_features, out_features, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * value)
