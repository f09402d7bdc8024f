"""A small text encoder: bytes of the prompt through a causal transformer."""

import torch
import torch.nn.functional as F
from torch import nn


def tokenize(prompt: str, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The prompt's bytes as (length,) tokens, padded with 0, and a mask of those that count."""
    codes = list(prompt.encode())[:length]
    padding = [0] * (length - len(codes))
    return torch.tensor(codes + padding), torch.tensor([True] * len(codes) + [False] * len(padding))


class TextEncoder(nn.Module):
    """Token embeddings, two causal layers, a final norm: (B, L) to (B, L, dim)."""

    def __init__(self, dim: int, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(256, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for norm, qkv, out in zip(self.norms, self.qkv, self.out, strict=True):
            q, k, v = (
                part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for part in qkv(norm(x)).chunk(3, dim=-1)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(mixed.transpose(1, 2).flatten(2))
        return self.norm(x)
