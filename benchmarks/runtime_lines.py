"""How much of the runtime is written beside a program: files and lines, for programs of each kind.

    python benchmarks/runtime_lines.py

Needs no target. Prints the table of docs/targets.md; `all` is what `--runtime copy` writes.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from migrator import migrate_paths
from migrator.config import Config
from migrator.targets import targets

FIVE_LINES = """import torch

model = torch.nn.Linear(4, 2).cuda()
x = torch.ones(3, 4).cuda()
print(model(x))
"""
ONE_IMAGE = """import sys

import torch
import torchvision
from PIL import Image
from torchvision import transforms

device = torch.device("cuda")
model = torchvision.models.resnet18(weights="DEFAULT").to(device).eval()
prepare = transforms.Compose([
    transforms.Resize(256),
    transforms.CenterCrop(224),
    transforms.ToTensor(),
])
image = prepare(Image.open(sys.argv[1]).convert("RGB")).unsqueeze(0).to(device)
with torch.no_grad():
    scores = model(image).softmax(1)[0]
values, places = scores.topk(5)
for value, place in zip(values, places):
    print(f"{place.item()}: {value.item():.3f}")
"""
MANY_IMAGES = """import sys

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

device = torch.device("cuda")
model = torchvision.models.resnet18(weights="DEFAULT").to(device).eval()
prepare = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
loader = DataLoader(datasets.ImageFolder(sys.argv[1], prepare), batch_size=32, num_workers=2)
right = count = 0
with torch.no_grad():
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        right += (model(images).argmax(1) == labels).sum().item()
        count += len(labels)
print(right / count)
"""
TRAINING = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.out = nn.Linear(8 * 13 * 13, 10)

    def forward(self, x):
        return self.out(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
RANKS = """import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
    sampler = DistributedSampler(data)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
NOTEBOOK = json.dumps({
    "cells": [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
         "source": FIVE_LINES.splitlines(keepends=True)}
    ],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
})  # fmt: skip
PROGRAMS = {
    "5 lines, one call of a model": ("main.py", FIVE_LINES),
    "20 lines, one image": ("main.py", ONE_IMAGE),
    "20 lines, batches of images": ("main.py", MANY_IMAGES),
    "training of a CNN": ("main.py", TRAINING),
    "training with ranks (DDP)": ("main.py", RANKS),
    "a notebook": ("main.ipynb", NOTEBOOK),
}


def size(name: str, source: str, target: str, runtime: str) -> str:
    """The files and lines that a migration writes beside a program."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(source)
        config = Config(runtime=runtime, unsafe=True)
        files = migrate_paths([folder], target, config=config).companions.values()
    lines = sum(len(content.splitlines()) for content in files)
    return f"{lines:,} in {len(files)} files"


def main() -> None:
    print("| lines of runtime |", " | ".join(targets()), "|\n|---|" + "---|" * len(targets()))
    for label, (name, source) in PROGRAMS.items():
        row = [size(name, source, target, "bundled") for target in targets()]
        print(f"| {label} |", " | ".join(row), "|")
    row = [size("main.py", FIVE_LINES, target, "copy") for target in targets()]
    print("| all |", " | ".join(row), "|")


if __name__ == "__main__":
    main()
