"""Double Q-learning on drawn transitions: a target network, masks of what has ended."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

ACTIONS = 4
TAU = 0.1
device = torch.device("cuda")
torch.manual_seed(1)


class Values(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(6, width)
        self.hidden = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(width, ACTIONS)

    def forward(self, states):
        x = torch.relu(self.first(states))
        x = self.drop(torch.relu(self.hidden(x)))
        return self.last(x)


online = Values().cuda()
target = copy.deepcopy(online)
online.last.bias.no_decay = True
decayed = [p for p in online.parameters() if not getattr(p, "no_decay", False)]
plain = [p for p in online.parameters() if getattr(p, "no_decay", False)]
optimizer = torch.optim.Adam(
    [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
    lr=3e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
states, followers = torch.randn(160, 6), torch.randn(160, 6)
actions = torch.randint(0, ACTIONS, (160,))
rewards = torch.randn(160)
ended = (torch.rand(160) < 0.3).float()
online.train()
for step in range(8):
    part = slice(step * 16, step * 16 + 16)
    s, n = states[part].cuda(), followers[part].cuda()
    a, r, done = actions[part].cuda(), rewards[part].cuda(), ended[part].cuda()
    best = target(n).max(1).values
    wanted = (r + 0.9 * best * (1 - done)).detach()
    taken = online(s).gather(1, a.unsqueeze(1)).squeeze(1)
    optimizer.zero_grad()
    loss = F.smooth_l1_loss(taken, wanted)
    spread = online(n).pow(2).sum(1).mean()
    loss = loss + 0.01 * spread
    loss.backward()
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        for kept, new in zip(target.parameters(), online.parameters()):
            kept.lerp_(new, TAU)
    print(f"step {step} loss {loss.item():.5f}")
online.eval()
with torch.no_grad():
    print(f"values {online(states[128:].cuda()).mean().item():.5f}")
torch.save({"online": online.state_dict(), "target": target.state_dict()}, "q.pt")
