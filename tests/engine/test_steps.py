"""Training loops: their statements stay where they are; where a step ends, what divides it."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from helpers import cli, run, write_tree

from migrator.diagnostics import Severity

HEAD = """import time
import numpy as np
import torch

model = torch.nn.Linear(2, 2).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def in_loop(body: str, head: str = HEAD) -> str:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"{head}for i, (x, y) in enumerate(loader):\n{lines}"


def step(body: str) -> str:
    return in_loop(f"loss = model(x.cuda()).sum()\n{body}")


# ---- what stays ----------------------------------------------------------------------------------

LOOPS = {
    "a write through a subscript": """
pos = torch.arange(12, device="cuda").expand(3, -1).clone()
pos[:, 7:] += 5
loss = model(pos).pow(2).mean()
opt.zero_grad()
loss.backward()
opt.step()
print(loss.item())
""",
    "a dictionary of losses": """
x, y = x.cuda(), y.cuda()
out = model(x)
losses = {"ce": torch.nn.functional.cross_entropy(out, y)}
losses.update(reg=0.5 * out.pow(2).mean())
losses["reg"] *= 0.5
terms = [*losses.values()]
terms[0] *= 0.5
counts[y] += 1
loss = sum(terms) / counts.sum()
opt.zero_grad()
loss.backward()
opt.step()
print(loss.item(), {k: v.item() for k, v in losses.items()})
""",
    "gradients under a flag": """
x = x.cuda()
with torch.set_grad_enabled(is_train):
    loss = model(x).square().mean()
if is_train:
    model.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    "what a loader gives, written back": """
images[0] = images[0].cuda(non_blocking=True)
loss = model(images[0]).mean()
opt.zero_grad()
loss.backward()
opt.step()
""",
    "a rate of each iteration": """
x = x.cuda()
opt.param_groups[0]["lr"] = 0.1 / (1 + i)
opt.zero_grad()
loss = model(x).square().mean()
loss.backward()
opt.step()
""",
    "batches of NumPy": """
points = torch.Tensor(np.random.rand(8, 2) * 2).cuda()
opt.zero_grad()
loss = model(points).square().mean()
writer.add_scalar("loss", loss, i)
loss.backward()
opt.step()
""",
    "accumulation and a condition": """
loss = model(x.cuda()).sum() / 4
if torch.isnan(loss):
    continue
loss.backward()
total += loss.item()
if (i + 1) % 4 == 0:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
""",
    "two optimizers": """
real = x.cuda()
opt_d.zero_grad()
out = netD(real)
out.mean().backward()
seen = out.mean().item()
fake = netG(torch.randn(4, 2, device="cuda"))
netD(fake.detach()).mean().backward()
opt_d.step()
opt_g.zero_grad()
netD(fake).mean().backward()
opt_g.step()
print(seen)
""",
    "a closure": """
def closure():
    opt.zero_grad()
    loss = model(x.cuda()).sum()
    loss.backward()
    return loss
opt.step(closure)
""",
    "one line": "opt.zero_grad(); loss = model(x.cuda()).sum(); loss.backward(); opt.step()",
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("target", "device"), [("torchax", "jax"), ("torch_xla", "xla")])
def test_no_statement_of_a_loop_changes_places(loop: str, target: str, device: str) -> None:
    """All that differs is the device, and what is put in: imports, the set-up, and boundaries."""
    source = in_loop(LOOPS[loop])
    text = run(source, target, entry=True).source.decode()
    moved = source.replace(".cuda(non_blocking=True)", f'.to("{device}", non_blocking=True)')
    moved = moved.replace(".cuda()", f'.to("{device}")').replace('"cuda"', f'"{device}"')
    changes = difflib.ndiff(moved.splitlines(), text.splitlines())
    changes = [line for line in changes if line[0] in "+-" and line[2:].strip()]
    put_in = {"import tpu_runtime", "import torch_xla", "tpu_runtime.setup()", "torch_xla.sync()"}
    assert {line[0] for line in changes} == {"+"}
    assert {line[2:].strip() for line in changes} <= put_in
    assert ("torch_xla.sync()" in text) is (target == "torch_xla")
    assert run(text, target, entry=True).source.decode() == text


EARLIER = """import torch
import tpu_runtime

tpu_runtime.setup()

model = torch.nn.Linear(2, 2).to("jax")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0


@tpu_runtime.train_step
def step(x, update):
    loss = model(x).sum()
    loss.backward()
    if update:
        opt.step()
        opt.zero_grad()
    return loss


for i, x in enumerate(loader):
    x = x.to("jax")
    loss = step(x, update=i % 2 == 0)
    total += loss.item()
    print(loss)
"""


def test_a_step_that_was_written_as_a_function_stays_one() -> None:
    """By hand, or by an earlier version of the tool."""
    result = run(EARLIER, entry=True)
    assert result.source.decode() == EARLIER
    assert not [d for d in result.diagnostics if d.severity is Severity.ADVICE]


# ---- where a step ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behind", "last"),
    [
        ("batch_time.update(time.time() - end)", "opt.step()"),
        ("losses.update(loss.item(), 3)", "opt.step()"),
        ("metric_logger.update(loss=loss, **reduced)", "opt.step()"),
        ("scaler.update()", "scaler.update()"),
        ("ema.update(model)", "ema.update(model)"),
        ("scheduler.step()", "scheduler.step()"),
    ],
)
def test_a_sync_stands_right_behind_the_step(behind: str, last: str) -> None:
    source = step(f"loss.backward()\nopt.step()\n{behind}\nend = time.time()")
    lines = run(source, "torch_xla").source.decode().splitlines()
    assert lines[lines.index("    torch_xla.sync()") - 1].strip() == last


# ---- what divides it -----------------------------------------------------------------------------


def told(source: str, target: str = "torchax") -> list[tuple[str, int]]:
    """The code and the line of all advice."""
    diagnostics = run(source, target).diagnostics
    return [(d.code, d.range.line) for d in diagnostics if d.severity is Severity.ADVICE]


BACKWARD = "loss.backward()\nopt.step()"
DIVIDING = [
    f"total += loss.item()\n{BACKWARD}",
    f"print(loss)\n{BACKWARD}",
    f"print(f'{{loss:.3f}}')\n{BACKWARD}",
    f"seen = float(loss)\n{BACKWARD}",
    f"seen = loss.detach().cpu().numpy()\n{BACKWARD}",
    f"seen = loss.detach().numpy()\n{BACKWARD}",
    f"if loss > 5:\n    loss = loss / 5\n{BACKWARD}",
    f"if torch.isnan(loss):\n    continue\n{BACKWARD}",
    f"assert loss.item() < 5\n{BACKWARD}",
    f"scale = 1 if loss.item() < 5 else 2\n{BACKWARD}",
    "loss.backward();  opt.zero_grad() if loss.item() > 5 else opt.step()",
]


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
@pytest.mark.parametrize("body", DIVIDING)
def test_a_read_in_the_middle_of_a_step_is_said_once_at_its_line(body: str, target: str) -> None:
    assert told(step(body), target) == [("TRN005", 9)]


def test_the_gradients_that_a_step_has_before_it_is_made() -> None:
    norms = "for p in model.parameters():\n    norm = torch.norm(p.grad)\n    total += norm.item()"
    assert told(step(f"loss.backward()\n{norms}\nopt.step()")) == [("TRN005", 12)]


def test_a_part_of_a_step_in_a_function_of_its_own() -> None:
    source = HEAD + (
        "def scored(x):\n    out = model(x.cuda())\n    scores.append(out.mean().item())\n"
        "    return out.sum()\n\n\nfor x in loader:\n    loss = scored(x)\n    loss.backward()\n"
        "    opt.step()\n    print(loss)\n"
    )
    assert told(source) == [("TRN005", 9)]
    evaluates = source.replace("    loss.backward()\n    opt.step()\n", "")
    assert "TRN005" not in {code for code, _ in told(evaluates)}


NOT_DIVIDING = [
    f"{BACKWARD}\ntotal += loss.item()",
    f"{BACKWARD}\nprint(loss)\nif loss > 5:\n    break",
    f"if i % 10 == 0:\n    print(loss.item())\n{BACKWARD}",
    f"if x.sum() > 0:\n    pass\n{BACKWARD}\nscheduler.step(loss.item())",
    f"print('here', x.shape)\n{BACKWARD}",
    f"if loss.requires_grad and len(x) > 3:\n    pass\n{BACKWARD}",
]


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
@pytest.mark.parametrize("body", NOT_DIVIDING)
def test_an_ordinary_loop_gets_no_advice(body: str, target: str) -> None:
    assert told(step(body), target) == []


def test_a_read_where_a_program_ends_anyway_divides_nothing() -> None:
    """The next call of a model after a backward pass begins another one on torchax."""
    body = (
        "opt.zero_grad()\nout = model(x.cuda())\nout.sum().backward()\nseen = out.mean().item()\n"
        "loss = model(x.cuda()).mean()\nloss.backward()\nopt.step()"
    )
    assert told(in_loop(body)) == []
    assert told(in_loop(body), "torch_xla") == [("TRN005", 11)]


def test_loops_beside_a_training_loop_are_no_part_of_it() -> None:
    source = HEAD + (
        "for epoch in range(9):\n    right = 0\n    for x in test_loader:\n"
        "        with torch.no_grad():\n            right += model(x.cuda()).argmax(1).sum()\n"
        "    print(right.item())\n    for x in loader:\n        loss = model(x.cuda()).sum()\n"
        "        loss.backward()\n        opt.step()\n    print(loss.item())\n"
    )
    assert "TRN005" not in {code for code, _ in told(source)}


def test_the_comment_that_ignores_it_is_understood_where_it_stood_and_where_it_stands() -> None:
    ignored = "  # tpu-migrate: ignore[TRN005]"
    source = step(f"print(loss){ignored}\nloss.backward()\nopt.step(){ignored}")
    result = run(source)
    assert {d.code for d in result.diagnostics if d.outcome is None} == set()
    assert result.source.decode().count(ignored) == 2


MODEL = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('ready', torch.tensor(0){})

    def forward(self, x):
        if self.ready.item() == 0:
            x = x + 1
        return x

    def shown(self):
        return self.ready.item()
"""
PROGRAM = """import torch
from model import Net

net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x in data:
    loss = net(x.cuda()).sum()
    loss.backward()
    optimizer.step()
for x in data:
    loss = net(x.cuda()).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
@pytest.mark.parametrize("own", ["", ".cuda()"])
def test_a_read_in_the_forward_pass_of_another_file_is_said_once(
    own: str, target: str, tmp_path: Path
) -> None:
    """At the step, or in that file if it uses the device itself, and so has advice of its own."""
    root = write_tree(tmp_path, {"a.py": PROGRAM, "model.py": MODEL.format(own)})
    text = cli(".", "--target", target, "--check", cwd=root).stdout.decode()
    advice = [line for line in text.partition("\nAdvice\n")[2].splitlines() if ".py:" in line]
    (said,) = advice
    if own:
        assert said.startswith("model.py:10:") and "ADV007" in said
    else:
        assert said.startswith("a.py:9:") and "TRN005" in said
        assert "a forward pass reads (line 10 of model.py)" in said
