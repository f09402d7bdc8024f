"""As older guides have it: training on one TPU core."""

import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from parts import Digits, digits
from torch.utils.data import DataLoader


def train(model, device, loader, optimizer):
    model.train()
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)  # the barrier: no ParallelLoader here
        xm.master_print(f"loss {loss.item():.7f}")


def test(model, device, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            xm.mark_step()
            total += F.cross_entropy(output, target.to(device), reduction="sum").item()
    print(f"test {total / len(loader.dataset):.7f}")


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    model = Digits().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        train(model, device, DataLoader(digits(64, 1), batch_size=16), optimizer)
        test(model, device, DataLoader(digits(32, 2), batch_size=16))
    xm.save(model.state_dict(), __file__ + ".pt")


if __name__ == "__main__":
    main()
