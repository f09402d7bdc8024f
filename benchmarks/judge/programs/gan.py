"""A GAN on drawn points: two optimizers, a detached fake, an average of the generator."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

DECAY = 0.9
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.norm = nn.BatchNorm1d(width, eps=1e-3)
        self.hidden = nn.Linear(width, width)
        self.last = nn.Linear(width, 2)

    def forward(self, noise):
        x = torch.relu(self.norm(self.first(noise)))
        x = torch.relu(self.hidden(x))
        return self.last(x)


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.hidden = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)

    def forward(self, points):
        x = F.leaky_relu(self.first(points), 0.2)
        x = F.leaky_relu(self.hidden(x), 0.2)
        return self.last(x)


generator, discriminator = Generator().to(device), Discriminator().to(device)
average = copy.deepcopy(generator)
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999), eps=1e-8)
d_optimizer = torch.optim.Adam(
    discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999), eps=1e-8, weight_decay=0.1
)
points = torch.randn(160, 2) + 2.0
generator.train()
for step in range(8):
    real = points[step * 16 : step * 16 + 16].to(device)
    noise = torch.randn(16, 4, device=device)
    fake = generator(noise)

    d_optimizer.zero_grad()
    d_real = F.softplus(-discriminator(real)).mean()
    d_fake = F.softplus(discriminator(fake.detach())).mean()
    d_loss = d_real + d_fake
    d_loss.backward()
    d_optimizer.step()

    g_optimizer.zero_grad()
    g_loss = F.softplus(-discriminator(fake)).mean()
    g_loss.backward()
    g_optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), generator.parameters()):
            kept.lerp_(new, 1 - DECAY)
    print(f"step {step} d {d_loss.item():.5f} g {g_loss.item():.5f}")
generator.eval()
with torch.no_grad():
    print(f"mean {generator(torch.randn(32, 4, device=device)).mean().item():.5f}")
torch.save({"generator": generator.state_dict(), "average": average.state_dict()}, "gan.pt")
