"""A small ResNet on drawn images: SGD with momentum, groups by an attribute, StepLR, an average."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 6
DECAY = 0.9
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width, eps=1e-3)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.hidden = nn.Linear(width, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images):
        x = self.blocks(self.stem(images)).mean((2, 3))
        x = torch.relu(self.hidden(x))
        return self.head(x)


net = Net().to(device)
for module in net.modules():
    if isinstance(module, nn.BatchNorm2d):
        module.weight.no_decay = True
net.head.bias.no_decay = True
decayed = [p for p in net.parameters() if not getattr(p, "no_decay", False)]
plain = [p for p in net.parameters() if getattr(p, "no_decay", False)]
optimizer = torch.optim.SGD(
    [{"params": decayed, "weight_decay": 5e-3}, {"params": plain, "weight_decay": 0.0}],
    lr=0.05,
    momentum=0.9,
)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
average = copy.deepcopy(net)
images = torch.randn(96, 3, 12, 12)
labels = torch.randint(0, CLASSES, (96,))
net.train()
for step in range(8):
    x = images[step * 8 : step * 8 + 8].to(device)
    y = labels[step * 8 : step * 8 + 8].to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), net.parameters()):
            kept.mul_(DECAY).add_(new, alpha=1 - DECAY)
    print(f"step {step} loss {loss.item():.5f}")
net.eval()
with torch.no_grad():
    logits = net(images[64:].to(device))
    held_out = F.cross_entropy(logits, labels[64:].to(device))
print(f"held out {held_out.item():.5f}")
torch.save({"net": net.state_dict(), "average": average.state_dict()}, "classifier.pt")
