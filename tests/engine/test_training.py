"""Training: what keeps it right, and the option that lets it be."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import migrated, outcomes, reported, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from tests.engine.snippets import exact

STEPS = {
    "scheduler.step()": False,
    "self.step()": False,
    "obs = env.step(action)": False,
    "prof.step()": False,
    "scaler.update()": False,
    "optimizer.step()": True,
    "opt.step()": True,
    "self.optim_g.step()": True,
    "loss = optimizer.step(closure)": True,
    "scaler.step(optimizer)": True,
    "optimizers['g'].step()": True,
    "thing.zero_grad()\nthing.step()": True,
    "x = torch.optim.SGD(p, 0.1)\nx.step()": True,
}


@pytest.mark.parametrize(("code", "is_step"), STEPS.items())
def test_only_an_optimizers_step_is_a_step(code: str, is_step: bool) -> None:
    source = f"import torch\nloss.backward()\n{code}\n"
    assert ("torch_xla.sync()" in migrated(source, "torch_xla")) == is_step
    assert migrated(source, "torchax") == source


FOUND = {
    "o = make()\nloss.backward()\no.step()": True,
    "def fit(o: torch.optim.Optimizer):\n    o.step()": True,
    "o, s = both()\no.step()": True,
    "o, s = both()\ns.step()": False,
    "for o in model.configure_optimizers():\n    o.step()": True,
    "table = {'a': torch.optim.SGD(p, 0.1)}\nfor k, v in table.items():\n    v.step()": True,
    "held = [torch.optim.SGD(p, 0.1) for p in ps]\nheld[0].step()": True,
    "import transformers\nw = transformers.AdamW(p)\nw.step()": True,
    "class T:\n    def __init__(self, p):\n        self.o = torch.optim.Adam(p)\n"
    "    def go(self):\n        self.o.step()": True,
}
HELPERS = """\
import torch
class M(torch.nn.Module):
    def configure_optimizers(self):
        return [torch.optim.Adam(self.a.parameters()), torch.optim.Adam(self.b.parameters())]
def make():
    return torch.optim.SGD(p, 0.1)
def both():
    o = make()
    return o, torch.optim.lr_scheduler.StepLR(o, 3)
"""


@pytest.mark.parametrize(("code", "is_step"), FOUND.items())
def test_an_optimizer_is_found_where_it_comes_from(code: str, is_step: bool) -> None:
    result = run(f"{HELPERS}{code}\n", "torch_xla")
    assert result.source.decode().count("torch_xla.sync()") == is_step
    assert not reported(result)


def test_where_steps_end() -> None:
    exact(
        """\
        import torch
        for i, (x, y) in enumerate(data):
            loss = f(net(x), y) / n
            loss.backward()
            if (i + 1) % n == 0:
                optimizer.step()
                optimizer.zero_grad()
            print(loss.item())
        for x in data:
            g.backward()
            optimizer_g.step()
            optimizer_d.step()
            total += g.item()
        """,
        """\
        import torch
        import torch_xla
        for i, (x, y) in enumerate(data):
            loss = f(net(x), y) / n
            loss.backward()
            if (i + 1) % n == 0:
                optimizer.step()
                optimizer.zero_grad()
            torch_xla.sync()
            print(loss.item())
        for x in data:
            g.backward()
            optimizer_g.step()
            optimizer_d.step()
            torch_xla.sync()
            total += g.item()
        """,
        "torch_xla",
    )


def test_a_step_beside_an_update_by_hand_ends_after_both() -> None:
    exact(
        """\
        import torch
        for x, y in data:
            f(net(x), y).backward()
            if args.use_optimizer:
                optimizer.step()
            else:
                for p in net.parameters():
                    p.data.add_(p.grad, alpha=-lr)
            total += loss.item()
            if args.mixed:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
        """,
        """\
        import torch
        import torch_xla
        for x, y in data:
            f(net(x), y).backward()
            if args.use_optimizer:
                optimizer.step()
            else:
                for p in net.parameters():
                    p.data.add_(p.grad, alpha=-lr)
            torch_xla.sync()
            total += loss.item()
            if args.mixed:
                scaler.step(optimizer)
                scaler.update()
                torch_xla.sync()
            else:
                optimizer.step()
                torch_xla.sync()
        """,
        "torch_xla",
    )


def test_a_step_of_something_unknown_is_reported_where_it_matters() -> None:
    source = "import torch\nloss.backward()\nthing.step()\n"
    assert outcomes(run(source, "torch_xla")) == [("TRN002", "reported", "thing.step")]
    assert outcomes(run(source, "torchax")) == [("TRN002", "kept", "thing.step")]


def test_a_program_on_the_cpu_gets_no_boundary() -> None:
    source = "import torch\nopt = torch.optim.SGD(p, 0.1)\nloss.backward()\nopt.step()\n"
    assert migrated(source, "torch_xla", entry=True) == source
    assert "torch_xla.sync()" in migrated(source, "torch_xla", entry=False)


ROUNDS = {
    "for x in data:\n    y = model(x)\n    total += y.sum()\n": "end",
    "for x in data:\n    y = net(x)\n    z = y * 2\n    print(z.sum().item())\n": "print",
    "for x in data:\n    y = self.generator(x)\n    if y.sum() > 1:\n        break\n": "end",
    "while x.size(0) < 9:\n    x = torch.cat([x, net(x)])\n": "end",
    "for x in data:\n    with ctx:\n        y = net(x)\n        n += y.item()\n": "n += y",
    "for x in data:\n    y = net(x)\n    y[y < 0] = -float('inf')\n    y = y.float()\n": "end",
    "for x in data:\n    y = self.model.forward(x)\n    if all(y):\n        break\n": "if all(y)",
    "for x in data:\n    print(model(x).sum().item())\n": None,
    "for x in data:\n    y = tokenize(x)\n": None,
    "for block in blocks:\n    x = net.blocks[0](block(x))\n": None,
    "for x in data:\n    y = model(x)\n    y.backward()\n": None,
}


@pytest.mark.parametrize(("loop", "place"), ROUNDS.items())
@pytest.mark.parametrize("off", ["with torch.no_grad():", "@torch.inference_mode()\ndef f(self):"])
def test_where_rounds_without_gradients_end(loop: str, place: str | None, off: str) -> None:
    body = "".join(f"    {line}\n" for line in loop.splitlines())
    source = f"import torch\nx.cuda()\n{off}\n{body}"
    lines = migrated(source, "torch_xla").splitlines()
    assert sum(line.strip() == "torch_xla.sync()" for line in lines) == (place is not None)
    assert "sync" not in migrated(source, "torchax")
    if place == "end":
        assert "sync" in lines[-1]
    elif place is not None:
        at = next(i for i, line in enumerate(lines) if "sync" in line)
        assert place in lines[at + 1]


@pytest.mark.parametrize(
    "code",
    [
        "class Net(torch.nn.Module):\n    @torch.no_grad()\n    def forward(self, x):\n"
        "        for i in range(3):\n            x = self.net(x)\n        return x\n",
        "with torch.set_grad_enabled(train):\n    for x in data:\n        y = model(x)\n",
        "with torch.no_grad():\n    y = [model(x) for x in data]\n",
        "with torch.no_grad():\n    for p in ps:\n        p.sub_(p.grad.div_(n), alpha=0.1)\n",
    ],
)
def test_what_is_no_round_without_gradients(code: str) -> None:
    assert "sync" not in migrated(f"import torch\nx.cuda()\n{code}", "torch_xla")


SAMPLER = """\
import torch
from torch import nn
class Sampler(nn.Module):
    def one(self, x, t):
        return x - self.model(x, t)
    def forward(self, x):
        for t in reversed(range(9)):
            x = self.one(x, t)
        return x
sampler = Sampler().cuda()
"""
STEP_BY_STEP = {
    "with torch.no_grad():\n    y = sampler(x)\n": "a sync",
    "y = sampler(x)\n": "advice",
    "with torch.no_grad():\n    y = sampler(x)\nz = sampler(x)\n": "advice",
    "def one(x):\n    return model(x)\nwith torch.no_grad():\n    for x in data:\n"
    "        y = one(x)\n": "a sync and advice",
    "for x in train_loader:\n    loss = criterion(model(x), x)\n"
    "    loss_scaler(loss, optimizer)\n": "advice twice",
}


@pytest.mark.parametrize(("code", "gets"), STEP_BY_STEP.items())
def test_loops_that_reach_a_model_or_a_step_by_a_function(code: str, gets: str) -> None:
    result = run(SAMPLER + code, "torch_xla")
    said = [d for d in result.diagnostics if d.code == "TRN003"]
    assert result.source.decode().count("torch_xla.sync()") == ("a sync" in gets)
    advised = sum(d.outcome is None for d in said)
    assert advised == (2 if "twice" in gets else "advice" in gets)


DIFFUSION = """\
import torch
from torch import nn
class Diffusion(nn.Module):
    def forward(self, x):
        return self.model(x, 1).pow(2).mean()
    def sample(self, x):
        for t in @TIMES@:
            x = x - self.model(x, t)
        return x
diffusion = Diffusion().cuda()
loss = diffusion(x)
"""


@pytest.mark.parametrize("times", ["reversed(range(9))", "range(9, 0, -1)"])
@pytest.mark.parametrize("without", [True, False])
def test_a_method_that_samples_ends_its_rounds(times: str, without: bool) -> None:
    called = "with torch.no_grad():\n    y = diffusion.sample(x)\n" if without else ""
    called = called or "y = diffusion.sample(x)\n"
    result = run(DIFFUSION.replace("@TIMES@", times) + called, "torch_xla")
    said = [d for d in result.diagnostics if d.code == "TRN003"]
    assert ("torch_xla.sync()" in result.source.decode()) is without
    assert any(d.outcome is None for d in said) is not without


EVALUATION = """\
import torch
from torch.utils.data import DataLoader
model.cuda()
def loaders():
    train_loader, test_loader = DataLoader(a), DataLoader(b)
    return train_loader, test_loader
train_loader, test_loader = loaders()
def learn(y):
    y.backward()
def right(y, t):
    return (y.argmax(1) == t).sum()
"""
TRAINED_FIRST = """\
for epoch in range(9):
    for x, t in train_loader:
        y = model(x)
        loss = criterion(y, t)
        loss.backward()
        optimizer.step()
    score = 0
    for x, t in test_loader:
        y = model(x)
        score += right(y, t)
    print(score.item())
"""
WITH_GRADIENTS = {
    TRAINED_FIRST: "a sync",
    "for x, t in enumerate(test_loader):\n    n += right(model(x), t)\nprint(n.item())\n": "a sync",
    "for x in test_loader:\n    y = model(x)\n    outs.append(y.argmax(1))\n": "advice",
    "def f():\n    for x in test_loader:\n        n += model(x).sum()\n    return n\n": "advice",
    "for x in test_loader:\n    meter.update(model(x).mean())\n": "advice",
    "for x in test_loader:\n    self.n += model(x).mean()\n": "advice",
    "for x in my_loader:\n    y = model(x)\n    print(y.sum().item())\n": "advice",
    "def f():\n    n = 0\n    for x in test_loader:\n        n += model(x).sum()\n"
    "    for o in optimizers:\n        n.backward()\n": "advice",
    "n = 0\nfor x in test_loader:\n    n += model(x).sum()\nn.backward()\n": "nothing",
    "for x in test_loader:\n    learn(model(x))\n": "nothing",
    "for x in test_loader:\n    train_model(x)\n": "nothing",
    "for x in data:\n    y = model(x)\n": "nothing",  # no batches
    **{
        "for x in test_loader:\n    y = model(x)\nfor x in train_loader:\n"
        f"{given}\n    (head(x) - y).mean().backward()\n    opt.step()\n": gets
        for given, gets in {
            "    with torch.no_grad():\n        y = model(x)": "a sync",
            "    if x.dim() > 1:\n        y = model(x)\n    else:\n        y = head(x)": "a sync",
            "    if x.dim() > 1:\n        y = model(x)": "advice",
            "    with guard():\n        y = model(x)": "advice",  # may go on for an error
            "    for x in x:\n        y = model(x)": "advice",
        }.items()
    },
}


@pytest.mark.parametrize(("code", "gets"), WITH_GRADIENTS.items())
def test_loops_that_evaluate_and_record_gradients(code: str, gets: str) -> None:
    """A sync where the source shows that no value is trained on later; advice in doubt."""
    result = run(EVALUATION + code, "torch_xla")
    advised = [d for d in result.diagnostics if d.code == "TRN003" and d.outcome is None]
    ended = [d for d in result.diagnostics if d.code == "TRN003" and d.outcome is Outcome.REWRITTEN]
    assert (bool(ended), bool(advised)) == (gets == "a sync", gets == "advice")
    assert "sync" not in migrated(EVALUATION + code, "torchax")


def with_a_step(owner: str, other: str, first: str) -> str:
    return f"""\
import torch


class {owner}:
    def {other}(self):
        self.base.zero_grad()

    def step(self, x):
        {first}
        self.base_optimizer.step()
        torch._foreach_lerp_(self.averages, self.parameters, 0.1)


net.cuda()
"""


@pytest.mark.parametrize(
    ("owner", "other", "first", "ends"),
    [
        ("Averaging(torch.optim.Optimizer)", "more", "pass", False),
        ("Averaging", "zero_grad", "pass", False),
        ("Trainer", "more", "net(x).backward()", True),
    ],
)
def test_the_step_inside_an_optimizers_own_is_no_end(
    owner: str, other: str, first: str, ends: bool
) -> None:
    """What that does behind it belongs to the step, which ends where the program calls it."""
    assert ("sync" in migrated(with_a_step(owner, other, first), "torch_xla")) == ends


WRAPPER = """\
class Scheduled:
    def __init__(self, optimizer):
        self._optimizer = optimizer

    def step_and_update(self):
        self._optimizer.step()
"""
MAIN = """\
import torch
from wrapper import Scheduled

model = torch.nn.Linear(2, 1){}
Scheduled(torch.optim.Adam(model.parameters())).step_and_update()
"""


@pytest.mark.parametrize("moved", [True, False])
def test_a_step_in_a_wrapper_that_does_not_import_torch(tmp_path: Path, moved: bool) -> None:
    main = MAIN.format(".cuda()" if moved else "")
    write_tree(tmp_path, {"wrapper.py": WRAPPER, "main.py": main})
    migrate_paths([tmp_path], "torch_xla", write=True, allow_dirty=True)
    text = (tmp_path / "wrapper.py").read_text(encoding="utf-8")
    assert ("        self._optimizer.step()\n        torch_xla.sync()\n" in text) == moved


def test_an_optimizer_of_another_framework_needs_nothing() -> None:
    source = "import paddle\noptimizer = paddle.optimizer.Adam()\noptimizer.step()\n"
    assert migrated(source, "torch_xla") == source
