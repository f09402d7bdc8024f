"""A transformer's results and gradients; migrated with --shard tp, on several devices.

python divided_model.py OUTPUT
"""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        q, k, v = (
            layer(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.fc2(input=F.gelu(self.fc1(x)))


class Net(nn.Module):
    def __init__(self, dim: int = 64, heads: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(2))
        self.head = nn.Linear(dim, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    torch.manual_seed(0)
    model = Net()
    x, weights = torch.randn(2, 10, 64), torch.randn(2, 10, 3)
    model = model.cuda()
    found = {}
    with torch.no_grad():
        for number in range(3):
            found[f"result {number}"] = model(x.cuda()).cpu()
    for number in range(2):  # a step as a whole, and one operator by operator
        model.zero_grad()
        loss = (model(x.cuda()) * weights.cuda()).sum()
        loss.backward()
        torch.cuda.synchronize()
        found |= {f"{name} {number}": p.grad.cpu() for name, p in model.named_parameters()}
    found |= {f"state {name}": value.cpu() for name, value in model.state_dict().items()}
    torch.save(found, sys.argv[1])


if __name__ == "__main__":
    main()
