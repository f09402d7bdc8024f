"""Snippets of steps, and what they become."""

from __future__ import annotations

from textwrap import dedent

from helpers import migrated


def exact(before: str, after: str, target: str = "torchax", unsafe: bool = False) -> None:
    assert migrated(dedent(before), target, unsafe=unsafe) == dedent(after)


STEP = """\
import torch
criterion = torch.nn.CrossEntropyLoss()
def train(net, opt, data, device):
    for i, (x, y) in enumerate(data):
        x = x.cuda()
        {}
        print(loss.item())
"""


def in_loop(body: str) -> str:
    lines = [
        "import torch",
        "x.cuda()",
        "for x, y in data:",
        *("    " + s for s in body.split("\n")),
    ]
    return "\n".join(lines) + "\n"
