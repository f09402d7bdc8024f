"""Advice: what is said of code that is right, and what only looks like it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import REPOSITORY, TARGETS, cli, constructs, run, write_tree

from migrator.diagnostics import Diagnostic, Severity
from migrator.registry import registry
from migrator.rule import Rule

PRELUDE = """import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = Net().cuda()
"""


def advice(source: str, target: str = "torch_xla", **options: Any) -> list[Diagnostic]:
    result = run(PRELUDE + source, target, **options)
    return [d for d in result.diagnostics if d.severity is Severity.ADVICE]


def _output(run: subprocess.CompletedProcess[bytes]) -> str:
    return run.stdout.decode()


def codes(source: str, target: str = "torch_xla") -> set[str]:
    return {d.code for d in advice(source, target) if d.code.startswith("ADV")}


def in_forward(*lines: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    return f"class Layer(nn.Module):\n    def forward(self, x, n=0):\n{body}\n        return x\n"


def in_loop(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"for x, y in loader:\n    out = model(x)\n    loss = F.mse_loss(out, y)\n{body}\n"


FOUND = {
    "ADV001": [
        in_forward("x = x[x > 0]"),
        in_forward("mask = x.abs() > 1", "x = self.weight * x[mask & (x < 3)]"),
        in_forward("x = x[:, ~torch.isnan(x)]"),
        in_forward("mask = torch.zeros_like(x, dtype=torch.bool)", "x = x[mask]"),
        in_forward("x = torch.nonzero(x)"),
        in_forward("i = x.nonzero(as_tuple=True)"),
        in_forward("i, j = torch.where(x > 0)"),
        in_forward("x = torch.masked_select(x, self.mask)"),
        in_forward("x = x.sum(0).unique()"),
        in_forward("keep = torchvision.ops.nms(x, self.scores, 0.5)"),
        in_forward("x = x.repeat_interleave(x.sum(1), 0)"),
        in_loop("best = out[out > 0.5]"),
        "class A(nn.Module):\n    def forward(self, x):\n        return self.pick(x)\n\n"
        "    def pick(self, x):\n        return x[x > 0]\n",
    ],
    "ADV002": [
        "for i in range(9):\n    new = model(x)\n    x = torch.cat([x, new], dim=1)\n",
        "for i in range(9):\n    last = x[:, -8:]\n    x = torch.cat((x, model(last)), 1)\n",
        "while go():\n    x = model(x)\n    seen = torch.cat([seen, x])\n",
        in_forward("k = torch.cat([self.cache_k, x], dim=1)"),
        in_forward("self.cache = torch.cat([self.cache, x], dim=1)"),
        in_forward("x = self.keys[:, : n + 4]"),
        "for end in range(4, 9):\n    out = model(x[:, begin:end])\n    begin = end\n",
    ],
    "ADV003": [
        in_loop("total += loss.item()"),
        in_loop("losses.append(loss.item())"),
        in_loop("losses.append(float(loss))"),
        in_loop("print(f'{loss:.3f}')"),
        in_loop("print(loss)"),
        in_loop("bar.set_postfix(loss=loss.item())"),
        in_loop("outs.append(out.cpu().numpy())"),
        in_loop("outs.extend(out.argmax(1).tolist())"),
        in_loop("right += (out.argmax(1) == y).sum().item()"),
        "for x, y in loader:\n    loss = compute(x, y)\n    loss.backward()\n"
        "    total += loss.item()\n",
        in_forward("for a, b in x.sum(1).tolist():", "    x = x + a"),
        "while input():\n    for x in rows:\n        out = model(x)\n        print(out.item())\n",
    ],
    "ADV004": [
        "train_loader = DataLoader(data, batch_size=8, num_workers=2)\n",
        "loader = DataLoader(data, 8, True, num_workers=2)\n",
        "loader = DataLoader(data, batch_size=size, shuffle=True, num_workers=2)\n",
        "from transformers import TrainingArguments\na = TrainingArguments('out', bf16=True)\n",
    ],
    "ADV005": [
        "train_loader = DataLoader(data, batch_size=8, drop_last=True)\n",
        "loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True, num_workers=0)\n",
    ],
    "ADV006": [
        "net = nn.Sequential(nn.Linear(784, 200), nn.Linear(200, 10))\n",
        "class A(nn.Module):\n    def __init__(self):\n        self.e = nn.Embedding(50, 300)\n"
        "        self.f = nn.Linear(300, n)\n",
        "train = DataLoader(data, batch_size=12, shuffle=True, drop_last=True, num_workers=2)\n",
    ],
    "ADV007": [
        in_forward("if x.sum() > 0:", "    x = -x"),
        in_forward("if n and x.max().item() > 1:", "    x = x / 2"),
        in_forward("x = -x if x.mean() < 0 else x"),
        in_forward("assert not torch.isnan(x).any()"),
        in_forward("while x.norm() > 1:", "    x = x / 2"),
        in_forward("if torch.equal(x, self.last):", "    x = x + 1"),
        in_loop("if torch.isnan(loss):", "    break"),
        "while True:\n    new = model(x).argmax(-1)\n    if new == end:\n        break\n",
    ],
    "ADV008": [
        in_forward("x = x * torch.tensor([1.0, 2.0], device=x.device)"),
        in_forward("x = x + torch.from_numpy(self.table).to(x.device)"),
        in_forward("t = torch.tensor([1.0, 2.0])", "t = t.to(torch.half)", "x = t.view(2).cuda()"),
        in_forward("x = x * torch.as_tensor([1, 2]).float().type_as(x)"),
    ],
    "ADV009": [
        in_forward("x = x.double()"),
        in_forward("x = x.to(torch.float64)"),
        in_forward("x = torch.zeros(3, device=x.device, dtype=torch.double)"),
        "model.double()\n",
        in_forward("x = x.long() * 2654435761"),
    ],
    "ADV010": [
        "pipe = Pipe.load(name, torch_dtype=torch.float16)\n",
        in_forward("x = x.to(torch.half)"),
        "dtype = torch.float16 if quick else torch.float32\n",
    ],
    "ADV011": [
        "x = tokenizer(texts, padding=True, return_tensors='pt')\n",
        "x = self.tokenizer.pad(rows, padding='longest', max_length=128)\n",
        "from transformers import DataCollatorForSeq2Seq\nc = DataCollatorForSeq2Seq(tokenizer)\n",
    ],
}
LOOK_ALIKES = {
    "ADV001": [
        in_forward("x[x < 0] = 0"),  # writes at a fixed shape
        in_forward("x = torch.where(x > 0, x, 0.0)"),
        in_forward("x = x[self.index]"),
        in_forward("x = x[n > 1]"),  # a parameter with a default: an option
        in_forward("x = x.repeat_interleave(2, 0)"),
        in_forward("i = np.nonzero(self.table)"),
        in_forward("x = x + self.table[np.array(self.rows) > 0].sum()"),
        in_loop("names = frame[frame.age > 3].unique()"),
        in_loop("rows = labels.cpu().numpy()", "rows = rows[rows > 0]"),
        "kept = boxes[boxes > 0]\n",  # runs once
    ],
    "ADV002": [
        in_forward("for layer in self.layers:", "    x = torch.cat([x, layer(x)], 1)"),
        in_forward("x = torch.cat([x, self.skip], 1)"),
        "for i in range(9):\n    x = model(z)\n    x = torch.cat([x, z])\n",  # anew in each round
        "for i in range(9):\n    x = torch.cat([x, read(i)])\n",  # no model
        "for i in range(9):\n    model(x)\n    seen = np.concatenate([seen, x])\n",
        in_forward("x = x[:, : x.shape[1] + 1]"),
        in_forward("x = self.table[: len(x)]"),
    ],
    "ADV003": [
        in_loop("if step % 100 == 0:", "    print(loss.item())"),
        in_loop("total += loss.detach()"),
        in_loop("count += y.size(0)"),
        in_loop("total += scores.item()"),  # nothing tells that it is a tensor
        in_loop("rows.append(np.mean(values).item())"),
        in_loop("outs.append(out.detach())"),
        in_loop("action = out.argmax().item()", "env.step(action)"),  # needed at once
        in_loop("words.append(read(x).cpu())"),
        "for epoch in range(9):\n    for x, y in loader:\n        loss = model(x)\n"
        "    print(loss.item())\n",  # once in an epoch
        "for epoch in range(9):\n    loss = train_model(data)\n    total += loss.item()\n",
        "for path in paths:\n    total += read(path).item()\n",
        in_forward("for a in n.tolist():", "    x = x + a"),  # sizes, which may be on the CPU
        in_loop("print(loss.item())", "break"),  # a look at the first batch
        "while True:\n    out = model(read(input('> ')))\n    print(out.item())\n",
        "import sys\nfor line in sys.stdin:\n    print(model(read(line)).argmax(-1).tolist())\n",
    ],
    "ADV004": [
        "train_loader = DataLoader(data, batch_size=8, drop_last=True)\n",
        "train_loader = DataLoader(data, batch_size=8, drop_last=args.drop)\n",
        "train_loader = DataLoader(data, batch_size=8, **options)\n",
        "from trl import SFTConfig\na = SFTConfig('out', dataloader_drop_last=True)\n",
        "train_loader = DataLoader(data, batch_sampler=sampler)\n",
        "train_loader = DataLoader(data, shuffle=True)\n",  # one at a time
        "train_loader = DataLoader(data, batch_size=len(data), shuffle=True)\n",
        "val_loader = DataLoader(data, batch_size=8)\n",
        "test_loader = DataLoader(train_set, batch_size=8, shuffle=True)\n",
        "train_eval = DataLoader(train_set, batch_size=8, shuffle=False)\n",
    ],
    "ADV005": [
        "train_loader = DataLoader(data, batch_size=8, num_workers=args.workers)\n",
        "train_loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)\n",
        "data = TensorDataset(x, y)\ntrain_loader = DataLoader(data, batch_size=8)\n",
        "def collate(rows):\n    return torch.stack(rows).to(device)\n\n\n"
        "train_loader = DataLoader(data, batch_size=8, collate_fn=collate)\n",
        "valid_loader = DataLoader(data, batch_size=8)\n",
    ],
    "ADV006": [
        "net = nn.Sequential(nn.Linear(784, 256), nn.Linear(256, 10))\n",
        "net = nn.Linear(784, 200)\n",  # what comes out, not what is hidden
        "net = nn.Sequential(nn.Linear(9, 64), nn.Linear(64, 9))\n",  # too small to matter
        "net = nn.Sequential(nn.Linear(n, 1000), nn.Linear(1000, n))\n",  # 1024 is near
        "train = DataLoader(data, batch_size=32, shuffle=True)\n",
        "test = DataLoader(data, batch_size=12)\n",
    ],
    "ADV007": [
        in_forward("if self.training and n > 1:", "    x = -x"),
        in_forward("if x.shape[0] > 1 and x.dim() == 3:", "    x = x[0]"),
        in_forward("if x is not None and x.requires_grad:", "    x = -x"),
        in_forward("if len(x) > 3 or x.size(0) == 2:", "    x = -x"),
        in_forward("if torch.is_tensor(x) and torch.is_grad_enabled():", "    x = -x"),
        in_forward("if x.dtype == torch.float16 and torch.isinf(x).any():", "    x = x / 2"),
        in_forward("if torch.all(x == 0):", "    x = self.other(x)"),  # TEN001's
        in_forward("rows = x.cpu().numpy()", "if rows.max() > 1:", "    x = -x"),
        in_loop("if step % 9 == 0:", "    if torch.isnan(loss):", "        break"),
        "if model(x).sum() > 0:\n    go()\n",  # once
        "while True:\n    if model(read(input())).sum() > 0:\n        break\n",
    ],
    "ADV008": [
        in_forward("x = x * torch.tensor([n, 2 * n], device=x.device)"),  # no buffer could hold it
        in_forward("x = x + torch.arange(4, device=x.device)"),
        "mean = torch.tensor([0.5, 0.5])\n",
        in_forward("sizes = torch.tensor([3, 4])", "x = x[:, : int(sizes.max())]"),
        in_forward("rows = torch.from_numpy(self.table).to(torch.float32)", "save(rows)"),
        in_forward("rows = torch.tensor([1, 2], device='cpu').long()"),
        in_forward("rows = torch.tensor([1, 2])", "rows = rows.to('cpu')"),
    ],
    "ADV009": [
        "steps = torch.linspace(0, 1, 9, dtype=torch.float64)\n",
        in_forward("table = torch.arange(4, dtype=torch.double, device='cpu')"),
        in_forward("x = x.cpu().double()"),
        in_forward("if x.dtype == torch.float64:", "    x = x.float()"),
        "rows = np.zeros(4, dtype=np.float64)\nseed = 2654435761\n",
    ],
    "ADV010": [
        "types = {'float16': torch.float16, 'float32': torch.float32}\n",
        "dtype = torch.bfloat16 if new else torch.float16\n",
        "with torch.autocast('cuda', dtype=torch.float16):\n    y = model(x)\n",
        "model.half()\n",  # PRE005's
        in_forward("if x.dtype == torch.float16:", "    x = x.float()"),
        "x = torch.zeros(3, dtype=torch.float16, device='cpu')\n",
    ],
    "ADV011": [
        "x = tokenizer(texts, padding='max_length', max_length=64)\n",
        "x = tokenizer(text, return_tensors='pt')\n",
        "x = tokenizer.pad(rows, pad_to_multiple_of=64)\n",
        "x = F.pad(x, (0, 1))\nx = tokenizer(texts, **options)\n",
        "from transformers import DataCollatorWithPadding\n"
        "collate = DataCollatorWithPadding(tokenizer, 'max_length')\n",
        "from own import DataCollatorWithPadding\nc = DataCollatorWithPadding(tokenizer)\n",
    ],
}


def _cases(table: dict[str, list[str]]) -> list[object]:
    return [
        pytest.param(code, source, id=f"{code}-{number}")
        for code, sources in table.items()
        for number, source in enumerate(sources)
    ]


@pytest.mark.parametrize(("code", "source"), _cases(FOUND))
def test_what_is_found(code: str, source: str) -> None:
    assert code in codes(source)


@pytest.mark.parametrize(("code", "source"), _cases(LOOK_ALIKES))
def test_what_only_looks_like_it(code: str, source: str) -> None:
    assert code not in codes(source)


def test_each_code_has_both() -> None:
    known = {code for code in registry().rules if code.startswith("ADV")}
    assert known == set(FOUND) == set(LOOK_ALIKES)


# ---- the same place is advised on once -----------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_advice_is_no_construct_and_changes_nothing(target: str) -> None:
    source = in_loop("total += loss.item()")
    plain = run(PRELUDE, target)
    result = run(PRELUDE + source, target)
    assert len(constructs(result)) == len(constructs(plain))
    assert result.source.decode().endswith(source)
    (said,) = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert (said.outcome, said.construct, said.range.line) == (None, "loss.item()", 11)


def test_a_line_is_advised_on_once() -> None:
    (said,) = advice(in_loop("print(loss.item(), out.mean().item(), float(out.sum()))"))
    assert said.construct == "loss.item()"
    (said,) = advice(in_forward("if x.max().item() > 1:", "    x = x / 2"))
    assert (said.code, said.construct) == ("ADV007", "x.max().item() > 1")


def test_a_read_that_the_compiled_step_moved_out_is_no_advice() -> None:
    source = (
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in loader:\n"
        "    optimizer.zero_grad()\n    out = model(x)\n    score = out.mean().item()\n"
        "    loss = F.mse_loss(out, y)\n    loss.backward()\n    optimizer.step()\n"
    )
    assert b"def step(" in run(PRELUDE + source, "torchax").source
    assert not codes(source, "torchax")
    assert codes(source, "torch_xla") == {"ADV003"}


def test_what_is_in_the_way_of_a_step_is_said_once() -> None:
    source = (
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in loader:\n"
        "    optimizer.zero_grad()\n    loss = F.mse_loss(model(x), y)\n"
        "    if torch.isnan(loss):\n        continue\n    loss.backward()\n    optimizer.step()\n"
    )
    (said,) = advice(source, "torchax")
    assert said.code == "TRN005" and "line 13" in said.message
    assert [d.code for d in advice(source, "torch_xla")] == ["ADV007"]
    held = "from accelerate import Accelerator\n"  # the runtime makes one program of it
    assert "TRN005" not in codes(held + source, "torchax")


def test_float64_is_what_the_target_makes_of_it() -> None:
    source = in_forward("x = x.double()")
    assert "becomes float32" in advice(source, "torchax")[0].message
    assert "emulated" in advice(source, "torch_xla")[0].message


def test_constants_of_a_compiled_program_cost_nothing() -> None:
    assert not codes(FOUND["ADV008"][0], "torchax")


# ---- where it is said ----------------------------------------------------------------------------


def test_only_of_programs_that_use_a_device(tmp_path: Path) -> None:
    loop = PRELUDE + in_loop("total += loss.item()")
    on_cpu = loop.replace(".cuda()", "")
    tree = {"gpu.py": loop, "cpu.py": on_cpu, "tests/check.py": loop}
    write_tree(tmp_path, tree)
    text = _output(cli(".", "--target", "torch_xla", "--check", cwd=tmp_path))
    assert re.findall(r"(\S+\.py):\S+  ADV003", text) == ["gpu.py"]


def test_switched_off() -> None:
    source = in_loop("total += loss.item()  # tpu-migrate: ignore[ADV003]")
    assert not advice(source)
    assert not advice("# tpu-migrate: ignore-file[ADV]\n" + in_loop("total += loss.item()"))
    assert not advice(in_loop("total += loss.item()"), ignore=("ADV",))
    assert advice(in_loop("total += loss.item()"), ignore=("ADV001",))
    branch = in_forward("if x.sum() > 0:", "    x = -x  # tpu-migrate: ignore[ADV007]")
    assert [d.code for d in advice(branch)] == ["ADV007"]  # the comment is on another line


def test_the_terminal_is_brief(tmp_path: Path) -> None:
    reads = [f"total{n} += loss.item()" for n in range(8)]
    write_tree(tmp_path, {"a.py": PRELUDE + in_loop(*reads)})
    text = _output(cli("a.py", "--target", "torch_xla", "--check", cwd=tmp_path))
    assert text.count("ADV003") == 1 and "a.py:11:15  ADV003  loss.item()" in text
    assert "also 7 places: 12:15, 13:15, 14:15, 15:15, 16:15, …" in text


def test_the_same_in_many_files_is_said_once(tmp_path: Path) -> None:
    for number in range(8):
        name = f"loss{number}"
        source = in_loop(f"{name} = F.mse_loss(out, y)", f"total += {name}.item()")
        (tmp_path / f"a{number}.py").write_text(PRELUDE + source)
    text = _output(cli(".", "--target", "torch_xla", "--check", cwd=tmp_path))
    assert text.count("ADV003") == 1
    assert "and the same in a1.py, a2.py and 5 more" in text


def test_strict_counts_it(tmp_path: Path) -> None:
    source = "import torch\nfrom . import other\nwith torch.autocast('cpu'):\n    f(x)\n"
    source += "dtype = torch.float16\n"
    write_tree(tmp_path, {"a.py": source})
    assert cli("a.py", "--target", "torchax", "--check", cwd=tmp_path).returncode == 0
    strict = ("a.py", "--target", "torchax", "--check", "--strict")
    assert cli(*strict, cwd=tmp_path).returncode == 1
    assert cli(*strict, "--ignore", "ADV", cwd=tmp_path).returncode == 0


# ---- the documentation ---------------------------------------------------------------------------

_PAGE = (REPOSITORY / "docs" / "advice.md").read_text()
_ADVICE = [rule for rule in registry().rules.values() if rule.code.startswith("ADV")]


@pytest.mark.parametrize("rule", _ADVICE, ids=lambda rule: rule.code)
def test_what_the_page_shows_as_better_is_better(rule: Rule) -> None:
    before, after = (run(example.before, "torch_xla") for example in rule.examples)
    assert rule.code in {d.code for d in before.diagnostics}
    assert not [d for d in after.diagnostics if d.severity is Severity.ADVICE]
    assert f"[{rule.code}](rules/{rule.code}.md)" in _PAGE


@pytest.mark.parametrize(
    "line",
    [
        "preds = torch.cat((preds, model(x).detach().cpu()), 0)",
        "out = model(x).cpu(); loss = criterion(out, y); total += loss.item()",
        "half = model(x).cpu().to(torch.float16)",
    ],
)
def test_what_is_on_the_host_already_is_nobodys_business(line: str) -> None:
    source = (
        "import torch\nmodel = torch.nn.Linear(2, 2).cuda()\ncriterion = torch.nn.MSELoss()\n"
        f"total = preds = 0\nfor x, y in data:\n    {line}\n"
    )
    found = [d.code for d in run(source).diagnostics if d.code in ("ADV002", "ADV010")]
    reads = [d for d in run(source).diagnostics if d.construct.endswith("loss.item()")]
    assert not found and not reads
