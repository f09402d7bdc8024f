"""A GPT with a loop of its own: the text grows by a token, and the model reads all of it again."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from record import Record

NAME = "gpt"


class Block(nn.Module):
    """Causal attention and a feed-forward network, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Bytes to logits of the next byte."""

    def __init__(self, width: int = 64, layers: int = 2, block_size: int = 24) -> None:
        super().__init__()
        self.block_size = block_size
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Logits and loss; without targets, logits of the last position only."""
        places = torch.arange(idx.size(1), device=idx.device)
        x = self.tokens(idx) + self.places(places)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None  # the list keeps the dimension
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, idx: Tensor, new_tokens: int) -> Tensor:
        """Append the likeliest tokens to (batch, length)."""
        for _ in range(new_tokens):
            # no more than the model has positions for
            context = idx if idx.size(1) <= self.block_size else idx[:, -self.block_size :]
            logits, _ = self(context)
            token = logits[:, -1, :].argmax(dim=-1, keepdim=True)
            idx = torch.cat((idx, token), dim=1)
        return idx


def run(prompts: list[str], new_tokens: int, repeat: int, record: Record) -> None:
    """Make the text several times; keep it, and the logits behind it."""
    model = GPT()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)  # not trained: tokens would hardly differ
    model.cuda().eval()
    idx = torch.tensor([list(prompt.encode()) for prompt in prompts]).cuda()
    for _ in range(repeat):
        with record.text():
            made = model.generate(idx, new_tokens)
    with torch.no_grad():
        logits, _ = model(made[:, -model.block_size :])
    record.keep(made, logits[:, -1])
