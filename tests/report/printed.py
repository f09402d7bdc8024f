"""What a report is made of, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

from helpers import REPOSITORY, cli, committed, git, write_tree

TO = ("--target", "torchax")
SCHEMA = json.loads((REPOSITORY / "tests" / "schemas" / "sarif-2.1.0.json").read_text())
CODE = """import torch

x = torch.ones(2).cuda()
s = torch.cuda.Stream()
torch.cuda.synchronize()
y = x.cuda()  # tpu-migrate: ignore[MOV001]
"""
HOSTILE = """import torch

# ``` </details> <script>alert(1)</script> @everyone | %0A::error::x
a = torch.ones(2, device="cuda")  # ```
s = torch.cuda.Stream(name="`x` | <b> @you")
"""


def printed(root: Path, form: str, *options: str, code: int = 1) -> str:
    run = cli(".", *TO, "--check", "--format", form, *options, cwd=root)
    assert run.returncode == code, run.stderr
    return run.stdout.decode()


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "execution_count": None, "id": f"c{n}", "metadata": {},
             "outputs": [], "source": cell.splitlines(keepends=True)}
            for n, cell in enumerate(cells)]  # fmt: skip
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def changed(root: Path, before: dict[str, str], after: dict[str, str]) -> Path:
    committed(root, before)
    git(root, "branch", "-M", "main")
    git(root, "checkout", "-qb", "change")
    write_tree(root, after)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "change")
    return root


STEP = """import torch
from torch import nn

model = nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    x, side = x.cuda(), torch.cuda.Stream()
    optimizer.zero_grad()
    loss = (model(x) - y.cuda()).sum()
    loss.backward()
    optimizer.step()
capability = torch.cuda.get_device_capability()
"""
