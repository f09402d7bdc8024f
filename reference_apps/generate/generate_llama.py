"""A llama-style model with a cache of its own: written at a position, read up to it; top-p."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from record import Record

NAME = "llama"


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions for (batch, length, heads, size)."""
    one, other = x.chunk(2, dim=-1)
    cos, sin = cos[None, :, None], sin[None, :, None]
    return torch.cat([one * cos - other * sin, one * sin + other * cos], dim=-1)


class Attention(nn.Module):
    """Grouped queries over cached keys and values."""

    def __init__(self, width: int, heads: int, kv_heads: int, batch: int, length: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, kv_heads * self.size, bias=False)
        self.wv = nn.Linear(width, kv_heads * self.size, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.cache_k = torch.zeros(batch, length, kv_heads, self.size).cuda()
        self.cache_v = torch.zeros(batch, length, kv_heads, self.size).cuda()

    def forward(
        self, x: Tensor, start: int, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        """(batch, length, width) to the same; `start` tokens are cached already."""
        batch, length, _ = x.shape
        q = rotate(self.wq(x).view(batch, length, self.heads, self.size), cos, sin)
        k = rotate(self.wk(x).view(batch, length, self.kv_heads, self.size), cos, sin)
        self.cache_k[:batch, start : start + length] = k
        self.cache_v[:batch, start : start + length] = self.wv(x).view(k.shape)
        times = self.heads // self.kv_heads
        keys = self.cache_k[:batch, : start + length].repeat_interleave(times, dim=2)
        values = self.cache_v[:batch, : start + length].repeat_interleave(times, dim=2)
        scores = q.transpose(1, 2) @ keys.permute(0, 2, 3, 1) / math.sqrt(self.size)
        if mask is not None:
            scores = scores + mask
        attended = F.softmax(scores.float(), dim=-1).type_as(q) @ values.transpose(1, 2)
        return self.wo(attended.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    """Attention and a gated feed-forward network."""

    def __init__(self, width: int, *attention: int) -> None:
        super().__init__()
        self.attention = Attention(width, *attention)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, *where: int | Tensor | None) -> Tensor:
        """(batch, length, width) to the same."""
        x = x + self.attention(self.norm1(x), *where)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Bytes to logits of the next byte."""

    def __init__(self, batch: int, length: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.layers = nn.ModuleList(Layer(width, 4, 2, batch, length) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, 256, bias=False)
        size = width // 4
        angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, start: int) -> Tensor:
        """Logits of all positions of (batch, length) tokens that begin at `start`."""
        length = tokens.shape[1]
        cos, sin = self.cos[start : start + length], self.sin[start : start + length]
        mask = None
        if length > 1:
            mask = torch.full((length, length), float("-inf"), device=tokens.device).triu(1)
            mask = torch.hstack([torch.zeros(length, start, device=tokens.device), mask])
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, start, cos, sin, mask)
        return self.output(self.norm(x)).float()


def sample_top_p(logits: Tensor, p: float, drawn: Tensor) -> Tensor:
    """Of the likeliest tokens that have `p` together, the one at which `drawn` (batch, 1) lies."""
    probabilities, order = torch.sort(torch.softmax(logits, dim=-1), dim=-1, descending=True)
    before = probabilities.cumsum(dim=-1) - probabilities
    probabilities[before > p] = 0.0
    total = probabilities.cumsum(dim=-1)
    at = (total < drawn * total[:, -1:]).sum(dim=-1, keepdim=True)
    return order.gather(1, at)


@torch.inference_mode()
def generate(model: Llama, ids: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """Text of `drawn` (length, batch, 1) tokens that begins with `ids`; logits of its last one."""
    batch, begin = ids.shape
    tokens = torch.zeros(batch, len(drawn), dtype=torch.long, device="cuda")
    tokens[:, :begin] = ids.cuda()
    previous = 0
    for at in range(begin, len(drawn)):
        logits = model(tokens[:, previous:at], previous)
        tokens[:, at] = sample_top_p(logits[:, -1] / 0.8, 0.9, drawn[at]).squeeze(1)
        previous = at
    return tokens, logits[:, -1]


def run(prompts: list[str], new_tokens: int, repeat: int, record: Record) -> None:
    """Make the text several times; keep it, and the logits of its last token."""
    ids = torch.tensor([list(prompt.encode()) for prompt in prompts])
    batch, begin = ids.shape
    total = begin + new_tokens
    model = Llama(batch, total)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    model.cuda().eval()
    # Drawn on the CPU: a seed gives the same text on any device.
    drawn = torch.rand(total, batch, 1).cuda()
    for _ in range(repeat):
        with record.text():
            tokens, logits = generate(model, ids, drawn)
    record.keep(tokens, logits)
