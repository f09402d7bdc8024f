"""Models of training programs that no installed library has."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def _twice(given: int, made: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for source in (given, made):
        convolution = nn.Conv2d(source, made, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(made), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """31 million parameters; transposed convolutions on the way up."""

    def __init__(
        self, channels: int, classes: int, widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    ):
        super().__init__()
        self.down = nn.ModuleList(map(_twice, (channels, *widths[:-1]), widths))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(_twice(a, b) for a, b in pairs)
        self.out = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for n, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if n else x)
            kept.append(x)
        for widen, part, before in zip(self.widen, self.up, kept[-2::-1], strict=True):
            x = part(torch.cat([before, widen(x)], 1))
        return self.out(x)  # type: ignore[no-any-return]


class _Modulated(nn.Module):
    """A block of DiT: shifts, scales and gates come from the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        parts = self.modulation(F.silu(condition))[:, None].chunk(6, -1)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        h = self.qkv(self.norm1(x) * (1 + scale1) + shift1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in h.chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate1 * self.proj(mixed)
        h = self.up(self.norm2(x) * (1 + scale2) + shift2)
        return x + gate2 * self.down(F.gelu(h, approximate="tanh"))


class DiT(nn.Module):
    """DiT-B/2, for latents of 32 by 32."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.embed = nn.Conv2d(4, width, 2, stride=2)
        self.place = nn.Parameter(torch.zeros(1, 256, width))
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(1001, width)
        self.blocks = nn.ModuleList(_Modulated(width, heads) for _ in range(depth))
        self.out = nn.Linear(width, 2 * 2 * 4)

    def forward(self, x: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        condition = self.time(time[:, None]) + self.label(label)
        h = self.embed(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            h = block(h, condition)
        return F.fold(self.out(h).transpose(1, 2), 32, 2, stride=2)


def dcgan(width: int = 64) -> tuple[nn.Module, nn.Module]:
    """The generator and the discriminator, for images of 64 by 64."""
    sizes = [8 * width, 4 * width, 2 * width, width]
    makes: list[nn.Module] = [nn.ConvTranspose2d(100, sizes[0], 4, bias=False)]
    judges: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for wide, narrow in zip(sizes, [*sizes[1:], 3], strict=True):
        makes += [nn.BatchNorm2d(wide), nn.ReLU()]
        makes.append(nn.ConvTranspose2d(wide, narrow, 4, 2, 1, bias=False))
    for wide, narrow in zip(sizes[-2::-1], sizes[:0:-1], strict=True):
        judges.append(nn.Conv2d(narrow, wide, 4, 2, 1, bias=False))
        judges += [nn.BatchNorm2d(wide), nn.LeakyReLU(0.2)]
    judges += [nn.Conv2d(sizes[0], 1, 4, bias=False), nn.Flatten(0)]
    return nn.Sequential(*makes, nn.Tanh()), nn.Sequential(*judges)
