"""Training steps: what may move into one, what is said of one that cannot, where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import cli, read_tree, run, write_tree

from migrator.diagnostics import Severity

HEAD = """import time
import torch

model = torch.nn.Linear(2, 2).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def step(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{HEAD}for x in loader:\n    loss = model(x.cuda()).sum()\n{lines}"


def advice(source: str) -> list[str]:
    return [d.message for d in run(source).diagnostics if d.severity is Severity.ADVICE]


def test_statements_of_one_line_are_named() -> None:
    source = step("opt.zero_grad(); loss.backward(); opt.step()")
    (said,) = advice(source)
    assert "line 8 holds several statements; put each on its own line, or write" in said
    assert "train_step" not in run(source).source.decode()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("if len(x) > 9:\n    raise ValueError", "line 9 contains `raise`"),
        ("assert len(x) < 9", "line 8 contains `assert`"),
        ("count: int = len(x)", "line 8 does more than compute"),
    ],
)
def test_advice_names_the_statement_that_keeps_a_step_in_parts(statement: str, said: str) -> None:
    assert any(said in each for each in advice(step(f"{statement}\nloss.backward()\nopt.step()")))


def test_all_lines_in_the_way_are_named() -> None:
    body = """send(x)
out = model(x.cuda())
send(out)
loss = out.sum()
for part in range(2):
    send(part)
    loss.tell()
send(loss)
loss.backward()
opt.step()"""
    (said,) = advice(step(body).replace("    loss = model(x.cuda()).sum()\n", ""))
    first, further = said.split(" (also in the way: ")
    assert first.endswith("line 14 calls send(), which may do more than compute")
    assert further.startswith("line 9, line 12, line 13)")  # not line 7, above the forward pass


def test_what_only_asks_a_model_moves() -> None:
    source = step(
        "opt.zero_grad()\nloss.backward()\nfor name, child in model.named_children():\n"
        "    torch.nn.utils.clip_grad_norm_(child.parameters(), ord('a'))\nopt.step()"
    )
    assert "@tpu_runtime.train_step" in run(source).source.decode()


def test_a_loop_over_a_loader_is_no_part_of_a_step() -> None:
    source = f"""{HEAD}
def train(loader):
    total = 0.0
    opt.zero_grad()
    for x in loader:
        total += model(x.cuda()).sum()
    total.backward()
    opt.step()

for epoch in range(3):
    train(loader)
"""
    assert "train_step" not in run(source).source.decode()
    assert any("loops over a loader" in said for said in advice(source))


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


@pytest.mark.parametrize(("body", "moves"), [("x / x.norm()", True), ("print(x)", False)])
@pytest.mark.parametrize("imported", ["from lib import *", "from lib import scaled"])
def test_lambdas_are_looked_into(body: str, moves: bool, imported: str, tmp_path: Path) -> None:
    train = step("opt.zero_grad()\nscaled(loss).backward()\nopt.step()")
    root = write_tree(
        tmp_path / "p",
        {"lib.py": f"scaled = lambda x: {body}\n", "train.py": f"{imported}\n{train}"},
    )
    cli(".", "--target", "torchax", "--allow-dirty", cwd=root)
    assert (b"@tpu_runtime.train_step" in read_tree(root)["train.py"]) is moves


HELD = """import torch

class Learner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model.cuda(), optimizer
        self.level, self.total = torch.rand(4), 0.0

    def train(self, loader):
        for x in loader:
            self.step(x)

    def step(self, x):
        self.optimizer.zero_grad()
        {}
        loss.backward()
        self.optimizer.step()
        return loss.detach()
"""


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (("self.level = self.level.to(x.device)", "loss = (self.model(x) - self.level).sum()"),
         "self.level"),
        (("loss = self.model(x).sum()", "self.total += loss"), "self.total"),
        (("with torch.enable_grad():", "    self.level = x - self.level",
          "    loss = (self.model(x) - self.level).sum()"), "self.level"),
    ],
)  # fmt: skip
def test_an_attribute_that_is_read_before_it_is_set_goes_on(
    lines: tuple[str, ...], kept: str
) -> None:
    source = HELD.format("\n        ".join(lines))
    assert any(
        f"{kept} is carried from one iteration to the next" in said for said in advice(source)
    )
    assert "train_step" not in run(source).source.decode()


def test_an_attribute_that_is_set_first_is_a_value_of_the_step() -> None:
    lines = ("with torch.enable_grad():", "    self.out = self.model(x)",
             "    loss = (self.out - self.level).sum()")  # fmt: skip
    source = run(HELD.format("\n        ".join(lines))).source.decode()
    assert "self.out, loss = training_step(x)" in source.replace("loss, self.out", "self.out, loss")


def test_what_is_in_the_way_is_named_with_its_line_and_file(tmp_path: Path) -> None:
    program = (
        "import torch\nfrom other import far\n\ndef near(x):\n    {}\n    return x\n\n"
        "opt = torch.optim.SGD(net.parameters(), 0.1)\nfor x in data:\n"
        "    loss = net(near(x.cuda())).sum()\n    loss.backward()\n    opt.step()\n"
    )
    for statement, said in {
        "print(x)": "line 10 calls near(), which in line 5 reads a value (print);",
        "x = far(x)": "line 10 calls near(), which in line 5 calls far(), which in line 5 of "
        "other.py calls deep(), which in line 2 of other.py reads a value (item);",
        "x = x[x.int().bool()]": "",  # casts
    }.items():
        other = "def deep(x):\n    x.item()\n\ndef far(x):\n    deep(x)\n"
        root = write_tree(tmp_path, {"a.py": program.format(statement), "other.py": other})
        text = cli(".", "--target", "torchax", "--check", cwd=root).stdout.decode()
        assert said in text and ("not compiled as a whole" in text) == bool(said)


@pytest.mark.parametrize("between", ["", "optimizer.param_groups[0]['lr'] = 0.1"])
def test_a_read_in_the_forward_pass_of_another_file_is_named(between: str, tmp_path: Path) -> None:
    """It keeps the step from being compiled, whether or not the statements move."""
    model = (
        "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.register_buffer('ready', torch.tensor(0))\n\n"
        "    def forward(self, x):\n        if self.ready.item() == 0:\n            x = x + 1\n"
        "        return x\n\n    def shown(self):\n        return self.ready.item()\n"
    )
    program = (
        "import torch\nfrom model import Net\n\nnet = Net().cuda()\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\nfor x in data:\n"
        f"    loss = net(x.cuda()).sum()\n    loss.backward()\n    {between}\n"
        "    optimizer.step()\n"
    )
    root = write_tree(tmp_path, {"a.py": program, "model.py": model})
    text = cli(".", "--target", "torchax", "--check", cwd=root).stdout.decode()
    (advice,) = [line for line in text.splitlines() if line.startswith("a.py:10")]
    assert "a forward pass reads a value (line 10 of model.py)" in advice
    assert ("line 9 keeps a value" in advice) == bool(between)
    text = cli(".", "--target", "torch_xla", "--check", cwd=root).stdout.decode()
    assert "each iteration waits for the device: a forward pass reads a value (line 10 of" in text
