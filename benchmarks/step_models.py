"""The models that compiled_step.py trains, with their batches and losses."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference_apps/mshnet"))

import torch
import torch.nn.functional as F
from loss import SLSIoULoss
from model import MSHNet
from torch import Tensor, nn

LR = 1e-3

Batch = tuple[Tensor, ...]


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=LR)


@dataclass
class Case:
    """A model, its batches and its loss."""

    name: str
    model: nn.Module
    batch: Callable[[], Batch]
    loss: Callable[..., Tensor]  # of the model's output and the batch
    inputs: tuple[Any, ...] = ()  # of the model, beside the first tensor of the batch


def images(size: int, channels: int, side: int) -> Callable[[], Batch]:
    return lambda: (torch.randn(size, channels, side, side), torch.randint(10, (size,)))


def entropy(output: Tensor, _: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(output, label)


def mlp() -> Case:
    layers = [nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return Case("MLP", nn.Sequential(*layers, nn.Linear(256, 10)), images(64, 1, 28), entropy)


def normalized(channels: int, features: int) -> list[nn.Module]:
    conv = nn.Conv2d(channels, features, 3, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(features), nn.ReLU(inplace=True)]


def convnet() -> Case:
    layers = [*normalized(3, 16), nn.MaxPool2d(2), *normalized(16, 32), nn.MaxPool2d(2)]
    layers += [*normalized(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return Case("ConvNet, BatchNorm", nn.Sequential(*layers), images(16, 3, 32), entropy)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, words: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, width // 32) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight  # tied

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.size(1), device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


def gpt() -> Case:
    def batch() -> Batch:
        tokens = torch.randint(512, (8, 65))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(output: Tensor, _: Tensor, following: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), following.flatten())

    return Case("GPT", GPT(512, 64, 192, 6), batch, loss)


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            nn.Sequential(*normalized(a, b), *normalized(b, b))
            for a, b in zip([1, *sizes], sizes, strict=False)
        )
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in itertools.pairwise(sizes)
        )
        self.merge = nn.ModuleList(nn.Sequential(*normalized(2 * a, a)) for a in sizes[:-1])
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        for enlarge, merge, skip in zip(
            reversed(self.enlarge), reversed(self.merge), reversed(skips[:-1]), strict=True
        ):
            x = merge(torch.cat([skip, enlarge(x)], 1))
        return self.last(x)


def masks(size: int, channels: int, side: int) -> Callable[[], Batch]:
    """Noise with a bright square, and where that is."""

    def batch() -> Batch:
        mask = torch.zeros(size, 1, side, side)
        for number in range(size):
            mask[number, :, 4 + number : 12 + number, 8:14] = 1
        return torch.randn(size, channels, side, side) * 0.3 + 2 * mask, mask

    return batch


def unet() -> Case:
    def loss(output: Tensor, _: Tensor, mask: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, mask)

    return Case("U-Net, BatchNorm", UNet(16), masks(8, 1, 64), loss)


def mshnet() -> Case:
    criterion, epoch, down = SLSIoULoss(warm_epoch=5), 6, nn.MaxPool2d(2, 2)

    def loss(output: tuple[list[Tensor], Tensor], _: Tensor, label: Tensor) -> Tensor:
        scales, final = output
        total = criterion(final, label, epoch)
        for level, mask in enumerate(scales):
            if level > 0:
                label = down(label)
            total = total + criterion(mask, label, epoch)
        return total / (len(scales) + 1)

    return Case("MSHNet", MSHNet(width=8, blocks=1), masks(8, 3, 64), loss, inputs=(True,))


CASES: dict[str, Callable[[], Case]] = {
    "mlp": mlp, "convnet": convnet, "gpt": gpt, "unet": unet, "mshnet": mshnet
}  # fmt: skip
