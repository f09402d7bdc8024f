"""A mean teacher: a student, its average as the target, a mask of what the teacher is sure of."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 5
DECAY = 0.9
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.manual_seed(1)


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(10, width)
        self.norm = nn.BatchNorm1d(width)
        self.hidden = nn.Linear(width, width)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(x)))
        x = self.drop(torch.tanh(self.hidden(x)))
        return self.last(x)


student = Net().to(device)
teacher = copy.deepcopy(student)
student.last.weight.scale = 2.0
student.last.bias.scale = 2.0
slow = [p for p in student.parameters() if getattr(p, "scale", 1.0) == 1.0]
fast = [p for p in student.parameters() if getattr(p, "scale", 1.0) > 1.0]
optimizer = torch.optim.SGD(
    [{"params": slow, "lr": 0.05}, {"params": fast, "lr": 0.1}],
    momentum=0.9,
    weight_decay=1e-2,
    nesterov=True,
)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
x_all = torch.randn(160, 10)
y_all = x_all[:, :CLASSES].argmax(1)
student.train()
teacher.train()
for step in range(8):
    x = x_all[step * 16 : step * 16 + 16].to(device)
    y = y_all[step * 16 : step * 16 + 16].to(device)
    noisy = x + 0.3 * torch.randn(16, 10).to(device)
    optimizer.zero_grad()
    logits = student(noisy)
    target = F.softmax(teacher(x), dim=1).detach()
    sure = (target.max(1).values > 0.25).float()
    distance = (F.softmax(logits, dim=1) - target).pow(2).sum(1)
    consistency = (distance * sure).mean()
    loss = F.cross_entropy(logits, y) + 5.0 * consistency
    loss.backward()
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        for kept, new in zip(teacher.parameters(), student.parameters()):
            kept.mul_(DECAY).add_(new, alpha=1 - DECAY)
    print(f"step {step} loss {loss.item():.5f} consistency {consistency.item():.5f}")
student.eval()
teacher.eval()
with torch.no_grad():
    held_out = F.cross_entropy(student(x_all[128:].to(device)), y_all[128:].to(device))
    agreed = F.cross_entropy(teacher(x_all[128:].to(device)), y_all[128:].to(device))
print(f"held out {held_out.item():.5f} teacher {agreed.item():.5f}")
torch.save({"student": student.state_dict(), "teacher": teacher.state_dict()}, "teacher.pt")
