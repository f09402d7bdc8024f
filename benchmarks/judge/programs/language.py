"""A small GPT on drawn words: AdamW in two groups, warm-up, clipping, dropout, tied embeddings."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 32
LENGTH = 12
device = torch.device("cuda")
torch.manual_seed(1)


class Attention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        y = y.transpose(1, 2).reshape(batch, length, width)
        return self.out(y)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.LayerNorm(width, eps=1e-5)
        self.attention = Attention(width)
        self.second = nn.LayerNorm(width, eps=1e-5)
        self.wide = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + F.dropout(self.attention(self.first(x)), 0.2, training=self.training)
        y = F.gelu(self.wide(self.second(x)))
        y = self.back(y)
        return x + F.dropout(y, 0.2, training=self.training)


class GPT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.words = nn.Embedding(CLASSES, width)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, words):
        x = self.words(words) + self.places
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.words.weight.t()


model = GPT().to(device)
model.places.no_decay = True
for name, parameter in model.named_parameters():
    if name.endswith("bias"):
        parameter.no_decay = True
matrices = [p for p in model.parameters() if p.ndim >= 2 and not getattr(p, "no_decay", False)]
others = [p for p in model.parameters() if p.ndim < 2 or getattr(p, "no_decay", False)]
groups = [{"params": matrices, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
words = torch.randint(0, CLASSES, (48, LENGTH + 1))
model.train()
for step in range(8):
    batch = words[step * 4 : step * 4 + 4].to(device)
    optimizer.zero_grad(set_to_none=True)
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print(f"step {step} loss {loss.item():.5f}")
model.eval()
with torch.no_grad():
    batch = words[32:].to(device)
    logits = model(batch[:, :-1])
    held_out = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
print(f"held out {held_out.item():.5f}")
torch.save(model.state_dict(), "language.pt")
