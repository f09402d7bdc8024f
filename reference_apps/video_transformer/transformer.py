"""A double-stream diffusion transformer for video (MMDiT), in the manner of HunyuanVideo-1.5.

Image and text tokens keep streams of their own, with weights of their own, and attend jointly.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import sequence_parallel
from attention import attention
from rotary import rotate


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of the model. ``head_dim`` is the sum of ``rope_dims`` (time, height, width)."""

    latent_channels: int
    hidden_size: int
    num_heads: int
    depth: int
    text_dim: int
    vision_dim: int
    patch: tuple[int, int, int] = (1, 2, 2)
    mlp_ratio: float = 4.0
    rope_dims: tuple[int, int, int] = (16, 56, 56)
    guidance_embed: bool = True

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


PRESETS = {
    "tiny": TransformerConfig(4, 64, 8, 4, 48, 32, rope_dims=(2, 2, 4)),
    "1.5": TransformerConfig(32, 2048, 16, 54, 3584, 1152, patch=(1, 1, 1)),
}


def timestep_embedding(t: torch.Tensor, dim: int, max_period: float = 10000.0) -> torch.Tensor:
    """Sines and cosines of ``t`` (B,) at ``dim`` / 2 frequencies: (B, dim), float32."""
    half = dim // 2
    exponents = torch.arange(half, dtype=torch.float32, device=t.device) / half
    angles = t.float()[:, None] * (max_period**-exponents)[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class ScalarEmbedder(nn.Module):
    """A number for each sample (timestep, guidance) as a vector."""

    def __init__(self, hidden_size: int, frequencies: int = 256) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.fc1 = nn.Linear(frequencies, hidden_size)
        self.fc2 = nn.Linear(hidden_size, hidden_size)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        embedded = timestep_embedding(t, self.frequencies).to(self.fc1.weight.dtype)
        return self.fc2(F.silu(self.fc1(embedded)))


class RMSNorm(nn.Module):
    """Root mean square normalization, computed in float32."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


class MLP(nn.Module):
    """Two layers with a GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU(approximate="tanh")
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Modulation(nn.Module):
    """AdaLN: ``count`` shifts, scales and gates from the conditioning vector."""

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.linear = nn.Linear(dim, count * dim)

    def forward(self, vec: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.linear(F.silu(vec))[:, None].chunk(self.count, dim=-1)


def modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale) + shift


class Stream(nn.Module):
    """One of the two streams of a block: its projections, its MLP and its modulation."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        dim, self.heads = config.hidden_size, config.num_heads
        self.mod = Modulation(dim, 6)
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.q_norm = RMSNorm(config.head_dim)
        self.k_norm = RMSNorm(config.head_dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.mlp = MLP(dim, int(dim * config.mlp_ratio))

    def project(
        self, x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values: (B, heads, tokens, head_dim) each."""
        x = modulate(self.norm1(x), shift, scale)
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        return self.q_norm(q), self.k_norm(k), v


class DoubleBlock(nn.Module):
    """Joint attention of image and text tokens, then an MLP for each."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.img = Stream(config)
        self.txt = Stream(config)

    def forward(
        self,
        img: torch.Tensor,
        txt: torch.Tensor,
        vec: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        img_mod, txt_mod = self.img.mod(vec), self.txt.mod(vec)
        img_q, img_k, img_v = self.img.project(img, *img_mod[:2])
        txt_q, txt_k, txt_v = self.txt.project(txt, *txt_mod[:2])
        img_q, img_k = rotate(img_q, *rope), rotate(img_k, *rope)

        img_k, img_v = sequence_parallel.whole(img_k, 2), sequence_parallel.whole(img_v, 2)
        joint = attention(
            torch.cat([img_q, txt_q], dim=2),
            torch.cat([img_k, txt_k], dim=2),
            torch.cat([img_v, txt_v], dim=2),
            mask,
        )
        img_out, txt_out = joint.split([img.shape[1], txt.shape[1]], dim=1)

        img = img + img_mod[2] * self.img.proj(img_out)
        txt = txt + txt_mod[2] * self.txt.proj(txt_out)
        img = img + img_mod[5] * self.img.mlp(modulate(self.img.norm2(img), *img_mod[3:5]))
        txt = txt + txt_mod[5] * self.txt.mlp(modulate(self.txt.norm2(txt), *txt_mod[3:5]))
        return img, txt


class FinalLayer(nn.Module):
    """Modulated norm and projection onto the pixels of a patch."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        pt, ph, pw = config.patch
        self.norm = nn.LayerNorm(config.hidden_size, elementwise_affine=False, eps=1e-6)
        self.mod = Modulation(config.hidden_size, 2)
        self.linear = nn.Linear(config.hidden_size, pt * ph * pw * config.latent_channels)

    def forward(self, x: torch.Tensor, vec: torch.Tensor) -> torch.Tensor:
        return self.linear(modulate(self.norm(x), *self.mod(vec)))


class VideoTransformer(nn.Module):
    """Predicts the velocity of video latents (B, C, T, H, W) at a timestep, given text."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.hidden_size
        self.patch_in = nn.Conv3d(
            config.latent_channels, dim, kernel_size=config.patch, stride=config.patch
        )
        self.text_in = nn.Linear(config.text_dim, dim)
        self.vision_in = nn.Linear(config.vision_dim, dim)
        self.time_in = ScalarEmbedder(dim)
        self.guidance_in = ScalarEmbedder(dim) if config.guidance_embed else None
        self.blocks = nn.ModuleList(DoubleBlock(config) for _ in range(config.depth))
        self.final = FinalLayer(config)

    def forward(
        self,
        latents: torch.Tensor,
        t: torch.Tensor,
        guidance: torch.Tensor,
        text: torch.Tensor,
        text_mask: torch.Tensor,
        vision: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        cached: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The velocity, and what all blocks but the first have added to the image tokens.

        ``text`` (B, L, text_dim) with ``text_mask`` (B, L), True for tokens that count; ``vision``
        (B, M, vision_dim), all 0 where there is no first frame. With ``cached``, the second result
        of an earlier step, only the first block runs (DeepCache).
        """
        grid = [n // p for n, p in zip(latents.shape[2:], self.config.patch, strict=True)]
        img = self.patch_in(latents).flatten(2).transpose(1, 2)
        vision_mask = torch.ones(vision.shape[:2], dtype=torch.bool, device=vision.device)
        if torch.all(vision == 0):  # text to video
            vision_mask = torch.zeros_like(vision_mask)
        txt = torch.cat([self.text_in(text), self.vision_in(vision)], dim=1)

        vec = self.time_in(t)
        if self.guidance_in is not None:
            vec = vec + self.guidance_in(guidance)

        img_mask = torch.ones(img.shape[:2], dtype=torch.bool, device=img.device)
        mask = torch.cat([img_mask, text_mask, vision_mask], dim=1)[:, None, None]

        img = sequence_parallel.part(img, 1)
        rope = (sequence_parallel.part(rope[0], 0), sequence_parallel.part(rope[1], 0))
        img, txt = self.blocks[0](img, txt, vec, rope, mask)
        if cached is None:
            first = img
            for block in self.blocks[1:]:
                img, txt = block(img, txt, vec, rope, mask)
            cached = img - first
        else:
            img = img + cached
        velocity = sequence_parallel.whole(self.final(img, vec), 1)
        return self.unpatch(velocity, grid), cached

    def unpatch(self, x: torch.Tensor, grid: list[int]) -> torch.Tensor:
        """Tokens (B, T·H·W, patch·C) as latents (B, C, T, H, W)."""
        t, h, w = grid
        pt, ph, pw = self.config.patch
        x = x.view(x.shape[0], t, h, w, self.config.latent_channels, pt, ph, pw)
        x = x.permute(0, 4, 1, 5, 2, 6, 3, 7)
        return x.reshape(x.shape[0], self.config.latent_channels, t * pt, h * ph, w * pw)
