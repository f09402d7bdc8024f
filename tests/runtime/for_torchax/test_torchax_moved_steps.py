"""Steps that move into a function do what they did: random training loops, before and after.

Both run on CPU torch, the migrated one with a stand-in for the runtime that is as strict as a
compiled step can be: what comes out of a step has no graph, and it starts without one.
"""

import contextlib
import io
import random
import re
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiers import thorough_but
from torch.utils import _pytree as pytree

from migrator import migrate_source

HEAD = """\
import numpy as np
import pytest
import torch
from torch import nn
torch.manual_seed(0)
np.random.seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.drop = nn.Dropout(0.2)
    def forward(self, x):
        return self.head(self.drop(torch.tanh(self.body(x))))
    def features(self, x):
        return self.body(x)
def detached(h):
    return h.detach()
def penalty(t):
    return t.square().mean()
model, other, ema = Net().cuda(), Net().cuda(), Net().cuda()
criterion = nn.MSELoss()
opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(opt_a, 0.9)
opt_b = torch.optim.Adam(other.parameters(), lr=0.05)
data = [(torch.randn(5, 3), torch.randn(5, 2)) for _ in range(4)]
cpu = torch.Generator()  # dropout draws on the device, from another one
seen, total, count, k = [], 0.0, 0, 0.5
h = torch.zeros(5, 2)
scale = torch.ones(1)
"""
KNOWN = """\
out, z, noise = torch.ones(5, 2), torch.ones(5, 3), torch.ones(5, 2)
loss, g, value, far = torch.zeros(()), torch.zeros(()), 0.0, torch.ones(5, 2)
fake, feature, w = torch.ones(5, 2), torch.ones(5, 4), torch.ones(4, 3)
"""
LOOP = """\
for epoch in range(2):
    for i, (x, y) in enumerate(data):
{}        print(out.mean().item() if i < 9 else loss)
    print(epoch, total, count, k)
"""
FUNCTION = """\
def update(x, y, i, epoch):
{}        return loss
for epoch in range(2):
    for i, (x, y) in enumerate(data):
        print(update(x, y, i, epoch).item())
"""
TAIL = """\
print([p.sum().item() for m in (model, other, ema) for p in m.parameters()])
print([None if p.grad is None else p.grad.sum().item() for p in model.parameters()])
print(seen, h.sum().item(), scale.item())
"""
LINES = [
    "x, y = x.cuda(), y.cuda()",
    "x = x.to('cuda')",
    "z = torch.randn(5, 3, generator=cpu)",
    "z = torch.tensor(np.random.normal(0, 1, (5, 3)), dtype=torch.float32)",
    "noise = torch.randn(5, 2, generator=cpu)",
    "out = model(x)",
    "out = other(x)",
    "fake = model(x)",
    "fake = other(fake[:, :1].expand(5, 3))",
    "feature = model.features(x)",
    "loss = criterion(out, y)",
    "loss = criterion(out + 0.1 * noise, y)",
    "loss = criterion(model(z), y)",
    "loss = criterion(model(x), y)",
    "loss = criterion(other(x), fake)",
    "loss = criterion(other(x), fake.detach())",
    "loss = loss + 0.1 * penalty(out)",
    "loss = loss * scale",
    "loss = loss * k",
    "loss = loss + h.mean()",
    "loss += criterion(model(x), h)",
    "loss = loss / 2",
    "g = criterion(model(x), y)",
    "g.backward()",
    "opt_a.zero_grad()",
    "opt_b.zero_grad()",
    "model.zero_grad()",
    "loss.backward()",
    "loss.backward(retain_graph=True)",
    "loss.backward()",
    "opt_a.step()",
    "opt_a.step()",
    "opt_b.step()",
    "if i % 2 == 0:\n            opt_a.step()\n            opt_a.zero_grad()",
    "if i % 2 == 0:\n            opt_a.step()\n            count += 1\n"
    "            print(loss.item())",
    "if (i + 1) % 2 == 0:\n            nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n"
    "            opt_a.step()\n            scheduler.step()\n            model.zero_grad()",
    "if k > 0.4:\n            opt_a.step()\n            count += 1",
    "scheduler.step()",
    "if epoch > 0:\n            loss = loss * 2",
    "nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
    "total += loss.item()",
    "seen.append(loss.item())",
    "value = out.mean().item()",
    "k = k + 0.01 * loss.item()",
    "count += 1",
    "print(loss.item())",
    "print(i, out.mean().item())",
    "if i % 2:\n            print(loss.item(), k)",
    "w = model.body.weight",
    "print(w.sum().item())",
    "h = h.detach()",
    "h = detached(h)",
    "h = model(x)",
    "h = out",
    "scale.mul_(1.1)",
    "y.add_(0.1)",
    "y[0] = 0",
    "with torch.no_grad():\n            far = (out - y).abs()\n"
    "            total += far.mean().item()",
    "with torch.no_grad():\n            for a, b in zip(ema.parameters(), model.parameters()):\n"
    "                a.mul_(0.9).add_(b, alpha=0.1)",
    "for p in model.parameters():\n            p.data.clamp_(-1, 1)",
    "if k > 0.6:\n            break",
    "if i == 1:\n            continue",
]


def train_step(function: Callable[..., Any]) -> Callable[..., Any]:
    def step(*args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if any(tensor.grad_fn is not None for tensor in tensors):
            return function(*args, **kwargs)  # as the runtime does
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, function(*args, **kwargs))

    return step


def output(source: str) -> str:
    runtime = types.ModuleType("tpu_runtime")
    runtime.__dict__.update(train_step=train_step, setup=lambda: None)
    sys.modules["tpu_runtime"] = runtime
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "program", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def program(number: int) -> str:
    draw = random.Random(number)
    loop = draw.random() < 0.7
    pool = LINES if loop else [line for line in LINES if not re.search(OUTSIDE, line)]
    lines = draw.sample(pool, draw.randint(3, 9))
    must = ["out = model(x)", "loss = criterion(out, y)", "loss.backward()", "opt_a.step()"]
    lines = [line for line in lines if line not in must or line == "loss.backward()"]
    places = sorted(draw.randint(0, len(lines)) for _ in must)
    for line, place in zip(reversed(must), reversed(places), strict=True):
        lines.insert(place, line)
    body = "".join(f"        {line}\n" for line in lines)
    known = KNOWN if loop and draw.random() < 0.7 else ""
    return HEAD + known + (LOOP if loop else FUNCTION).format(body) + TAIL


OUTSIDE = r"total|count|\bk\b|h = |continue|break|loss =.*loss|loss \+="


@pytest.mark.parametrize("start", thorough_but([0], range(0, 600, 60)))
def test_random_loops_do_what_they_did(start: int) -> None:
    before = sys.modules.get("tpu_runtime")
    counts: Counter[str] = Counter()
    try:
        for number in range(start, start + 60):
            source = program(number)
            try:
                expected = output(source.replace(".cuda()", ".cpu()").replace("'cuda'", "'cpu'"))
            except Exception:
                counts["broken"] += 1
                continue
            result = migrate_source(source, "torchax")
            assert not result.failed
            text = result.source.decode()
            counts["moved"] += "train_step" in text
            counts["ran"] += 1
            found = output(text.replace('"jax"', '"cpu"').replace("'jax'", "'cpu'"))
            assert found == expected, text
    finally:
        sys.modules.pop("tpu_runtime", None)
        if before is not None:
            sys.modules["tpu_runtime"] = before
    assert counts["ran"] > 10 and counts["moved"] > 2, counts
