"""The networks that programs.py trains."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = self.block(1, 8)
        self.second = self.block(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge = self.block(16, 8)
        self.last = nn.Conv2d(8, 1, 1)

    @staticmethod
    def block(channels: int, features: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(channels, features, 3, padding=1, bias=False),
            nn.GroupNorm(4, features),
            nn.SiLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        skip = self.first(x)
        down = self.second(F.max_pool2d(skip, 2))
        return self.last(self.merge(torch.cat([skip, self.up(down)], 1)))


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], layers: int, both: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8, padding_idx=0)
        self.cell = cell(8, 12, num_layers=layers, bidirectional=both, batch_first=True)
        self.out = nn.Linear(24 if both else 12, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        output, _ = self.cell(self.embedding(tokens))
        return self.out(output[:, -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(16, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens == 0
        x = self.layers(self.embedding(tokens), src_key_padding_mask=padding)
        return self.out(x.masked_fill(padding[..., None], 0).sum(1))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(13, 16), nn.Embedding(10, 16)
        self.blocks = nn.Sequential(Block(16, 2, True), Block(16, 2, True))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 13, bias=False)
        self.head.weight = self.tokens.weight  # tied

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.size(1), device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 17, 16) * 0.02)
        self.blocks = nn.Sequential(Block(16, 4, False), Block(16, 4, False))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.blocks(x)[:, 0])


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 8))
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20))

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x).chunk(2, 1)
        return self.decode(mean + noise * torch.exp(log_variance / 2)), mean, log_variance


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))
        self.enter = nn.Conv2d(1, 8, 3, padding=1)
        self.middle = nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.leave = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        rates = torch.exp(-math.log(100) * torch.arange(4, device=x.device) / 4).to(x.dtype)
        angles = t[:, None].to(x.dtype) * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        x = self.enter(x)
        return self.leave(x + self.middle(x + time))


class Contrastive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))
        self.texts = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        images = F.normalize(self.images(images), dim=-1)
        texts = F.normalize(self.texts(texts), dim=-1)
        return self.log_scale.exp() * images @ texts.t()
