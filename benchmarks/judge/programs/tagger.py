"""A recurrent tagger with padding: RMSprop, truncated backpropagation, rates by parameter."""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 7
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(1)


class Tagger(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.words = nn.Embedding(20, width, padding_idx=0)
        self.recurrent = nn.GRUCell(width, width)
        self.hidden = nn.Linear(width, width)
        self.drop = nn.Dropout(0.2)
        self.tags = nn.Linear(width, CLASSES)
        self.transitions = nn.Parameter(0.1 * torch.randn(CLASSES, CLASSES))

    def forward(self, words, state):
        scores = []
        for word in words.unbind(1):
            state = self.recurrent(self.words(word), state)
            x = torch.tanh(self.hidden(state))
            y = self.drop(x)
            y = self.tags(y)
            scores.append(y + F.softmax(y, dim=1) @ self.transitions)
        return torch.stack(scores, dim=1), state


model = Tagger().to(device)
model.transitions.scale = 0.5
own_rate = [p for p in model.parameters() if getattr(p, "scale", 1.0) < 1.0]
usual = [p for p in model.parameters() if getattr(p, "scale", 1.0) == 1.0]
optimizer = torch.optim.RMSprop(
    [{"params": usual, "lr": 2e-3}, {"params": own_rate, "lr": 1e-3}],
    eps=1e-6,
    momentum=0.5,
    weight_decay=0.05,
)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
words = torch.randint(1, 20, (8, 36))
words[:, 30:] = 0
tags = words % CLASSES
state = torch.zeros(8, 12, device=device)
model.train()
for step in range(6):
    x = words[:, step * 6 : step * 6 + 6].to(device)
    y = tags[:, step * 6 : step * 6 + 6].to(device)
    there = (x != 0).float() + 0.1
    state = state.detach()
    optimizer.zero_grad()
    scores, state = model(x, state)
    losses = F.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
    loss = (losses * there.flatten()).mean()
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    scheduler.step()
    print(f"step {step} loss {loss.item():.5f}")
model.eval()
with torch.no_grad():
    scores, _ = model(words[:, :6].to(device), torch.zeros(8, 12, device=device))
    held_out = F.cross_entropy(scores.flatten(0, 1), tags[:, :6].flatten().to(device))
print(f"held out {held_out.item():.5f}")
torch.save(model.state_dict(), "tagger.pt")
