"""Flow matching with a discrete code: times, noise, Gumbel noise and labels drawn on the device."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 5
CODES = 6
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(1)


class Flow(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Linear(9, width)
        self.code = nn.Linear(width, CODES)
        self.words = nn.Parameter(0.5 * torch.randn(CODES, width))
        self.labels = nn.Embedding(CLASSES, width)
        self.hidden = nn.Linear(width, width)
        self.last = nn.Linear(width, 8)

    def forward(self, x, time, label):
        x = torch.relu(self.first(torch.cat([x, time], dim=1)))
        x = F.dropout(x, 0.2, training=self.training)
        logits = self.code(x)
        noise = -torch.empty_like(logits).exponential_().log()
        code = torch.softmax((logits + noise) / 0.7, dim=1)
        x = torch.relu(self.hidden(x + code @ self.words + self.labels(label)))
        return self.last(x)


model = Flow().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=0.1)
data = torch.randn(192, 8) + 1.0
center = torch.zeros(1, 8, device=device)
smooth = torch.ones(1, device=device)
model.train()
for step in range(6):
    x1 = data[step * 32 : step * 32 + 32].to(device)
    center.mul_(0.8).add_(x1.mean(0), alpha=0.2)
    x1 = x1 - center
    x1[:, 4:] *= 0.5
    x0 = torch.randn(32, 8, device=device)
    time = torch.rand(32, 1, device=device)
    shift = torch.empty(32, 1, device=device).uniform_(-1, 1)
    label = torch.randint(0, CLASSES, (32,), device=device)
    xt = (1 - time) * x0 + time * x1 + 0.2 * shift
    speed = (x1 - xt) / (1 - time)
    optimizer.zero_grad()
    loss = F.smooth_l1_loss(model(xt, time, label), speed)
    smooth.mul_(0.9).add_(loss.detach(), alpha=0.1)
    (loss / smooth).backward()
    for parameter in model.parameters():
        parameter.grad.clamp_(-0.02, 0.02)
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f} smooth {smooth.item():.5f}")
model.eval()
with torch.no_grad():
    x = torch.randn(16, 8).to(device)
    place = torch.full((16, 1), 0.5, device=device)
    out = model(x, place, torch.zeros(16, dtype=torch.long, device=device))
print(f"speed {out.mean().item():.5f}")
torch.save(model.state_dict(), "flow.pt")
