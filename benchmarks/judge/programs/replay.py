"""Q-learning from a memory of tensors on the device, drawn with repetition; scaled rewards."""

import copy
import random

import torch
from torch import nn
from torch.nn import functional as F

ACTIONS = 3
TAU = 0.1
device = torch.device("cuda")
random.seed(3)
torch.manual_seed(1)


class Values(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.hidden = nn.Linear(width, width)
        self.last = nn.Linear(width, ACTIONS)

    def forward(self, states):
        x = torch.tanh(self.first(states))
        x = torch.tanh(self.hidden(x))
        return self.last(x)


online = Values().to(device)
target = copy.deepcopy(online)
optimizer = torch.optim.RMSprop(online.parameters(), lr=2e-3, eps=1e-6, momentum=0.5)
memory = []
scale = torch.ones(1, device=device)
state = torch.randn(1, 4).to(device)
online.train()
for step in range(8):
    for _ in range(4):
        action = torch.randint(0, ACTIONS, (1,)).to(device)
        follower = 0.9 * state + 0.4 * torch.randn(1, 4).to(device)
        follower[:, 0] += 0.3 * (action - 1)
        reward = 1.0 - follower.pow(2).sum(1)
        memory.append((state, action, reward, follower))
        state = follower
    chosen = [random.randrange(len(memory)) for _ in range(8)]
    states = torch.cat([memory[i][0] for i in chosen])
    actions = torch.cat([memory[i][1] for i in chosen])
    rewards = torch.cat([memory[i][2] for i in chosen])
    followers = torch.cat([memory[i][3] for i in chosen])
    scale.mul_(0.9).add_(rewards.abs().mean(), alpha=0.1)
    with torch.no_grad():
        wanted = rewards / scale + 0.9 * target(followers).max(1).values
    taken = online(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    optimizer.zero_grad()
    loss = F.smooth_l1_loss(taken, wanted)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(online.parameters(), 0.3)
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(target.parameters(), online.parameters()):
            kept.lerp_(new, TAU)
    print(f"step {step} loss {loss.item():.5f}")
online.eval()
with torch.no_grad():
    print(f"values {online(torch.randn(32, 4).to(device)).mean().item():.5f}")
torch.save({"online": online.state_dict(), "target": target.state_dict()}, "replay.pt")
