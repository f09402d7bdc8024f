"""Momentum contrast: a key encoder that follows, similarity by a matrix, a rate set by hand."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 16
TAU = 0.1
RATE = 2e-3
device = torch.device("cuda")
torch.manual_seed(1)


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(12, width)
        self.norm = nn.BatchNorm1d(width)
        self.hidden = nn.Linear(width, width)
        self.mix = nn.Parameter(torch.eye(width) + 0.1 * torch.randn(width, width))

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = self.hidden(x)
        return F.normalize(x @ self.mix, dim=1)


queries = Encoder().to(device)
keys = copy.deepcopy(queries)
queries.mix.scale = 3.0
usual = [p for p in queries.parameters() if getattr(p, "scale", 1.0) == 1.0]
scaled = [p for p in queries.parameters() if getattr(p, "scale", 1.0) > 1.0]
optimizer = torch.optim.AdamW(
    [{"params": usual}, {"params": scaled, "weight_decay": 0.0}],
    lr=RATE,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.2,
)
samples = torch.randn(160, 12)
queries.train()
keys.train()
for step in range(8):
    for group in optimizer.param_groups:
        group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / 8))
    x = samples[step * 16 : step * 16 + 16].to(device)
    first = x + 0.2 * torch.randn(16, 12).to(device)
    second = x + 0.2 * torch.randn(16, 12).to(device)
    optimizer.zero_grad()
    q = queries(first)
    k = keys(second).detach()
    own = torch.eye(16, dtype=torch.bool, device=device)
    against = (q @ k.t()).masked_fill(own, -10.0)
    positive = (q * k).sum(1, keepdim=True)
    logits = torch.cat([positive, against], dim=1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(16, dtype=torch.long, device=device))
    spread = torch.pdist(q).pow(2).mul(-2).exp().mean()
    loss = loss + spread
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(keys.parameters(), queries.parameters()):
            kept.mul_(1 - TAU).add_(new, alpha=TAU)
    print(f"step {step} loss {loss.item():.5f}")
queries.eval()
keys.eval()
with torch.no_grad():
    q, k = queries(samples[128:].to(device)), keys(samples[128:].to(device))
    print(f"likeness {(q * k).sum(1).mean().item():.5f}")
torch.save({"queries": queries.state_dict(), "keys": keys.state_dict()}, "contrastive.pt")
