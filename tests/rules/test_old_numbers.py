"""`loss.data[0]`: rewritten where the source shows that the tensor has no dimension."""

from pathlib import Path
from textwrap import dedent

import pytest
import torch
from helpers import cli, constructs, migrated, run, write_tree

from migrator.diagnostics import Outcome

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

x = torch.ones(3, 2).cuda()
"""

SHOWN = [
    ("out = nn.MSELoss()(x, x)", "out.data[0]"),
    ("criterion = nn.CrossEntropyLoss().cuda()\nout = criterion(x, x)", "out.data[0]"),
    ("criterion = nn.MSELoss()\nif len(x):\n    criterion = criterion.cuda()\n"
     "criterion = criterion.train()\nout = criterion(x, x)", "out.data[0]"),
    ("criterion = nn.MSELoss(reduction='sum')\nout = criterion(x, x)", "out.data.cpu()[0]"),
    ("out = F.mse_loss(x, x, size_average=False)", "out.data.cpu().numpy()[0]"),
    ("out = (x - 1).abs().max()", "out.data[0]"),
    ("out = torch.sum(x) / 2 - x.mean()", "out.data[0]"),
    ("out = 0\nfor _ in range(2):\n    out += x.sum()", "out.data[0]"),
    ("def total(a):\n    return a.sum(), a\nout, rest = total(x)", "out.data[0]"),
    ("def total(a):\n    part = a * 2\n    part[0] = 0\n    part = part.sum()\n    part /= 3\n"
     "    return a, part\nrest, out = total(x)", "out.data[0]"),
    ("def half(a):\n    return a / 2\nout = half(x.sum())", "out.data[0]"),
    ("class Own(nn.Module):\n    def forward(self, a):\n        a = a * 2\n"
     "        return a.mean()\nout = Own()(x)", "out.data[0]"),
    ("class Own(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
     "        self.part = nn.L1Loss()\n    def forward(self, a):\n"
     "        return 2 * self.part(a, a)\nown = Own().cuda()\nout = own(x)", "out.data[0]"),
    ("out = x.mean()\nout = out * 2", "out.data[0]"),
    ("out = f(x)\nout.backward()\nout = g(x)\nout.backward()", "out.data[0]"),
    ("out = 0\nout = f(x)\nout.backward()", "out.data[0]"),
    ("if y:\n    out = f(x)\nelse:\n    out = g(x)\nout.backward()", "out.data[0]"),
]  # fmt: skip


@pytest.mark.parametrize("lines, read", SHOWN)
def test_a_number_is_taken_where_there_is_one(lines: str, read: str) -> None:
    assert migrated(f"{HEAD}{lines}\ny = {read}\n").endswith("y = out.item()\n")


@pytest.mark.parametrize("lines, read", [case for case in SHOWN if "f(x)" not in case[0]])
def test_it_is_what_pytorch_gives(lines: str, read: str) -> None:
    scope: dict[str, torch.Tensor] = {}
    exec(f"{HEAD.replace('.cuda()', '')}{lines.replace('.cuda()', '')}\n", scope)
    assert scope["out"].dim() == 0


NOT_SHOWN = [
    "out = nn.MSELoss(reduction='none')(x, x)",
    "out = nn.MSELoss(reduce=False)(x, x)",
    "out = nn.MSELoss(reduction=args.reduction)(x, x)",
    "out = F.mse_loss(x, x, False, False)",
    "out = F.mse_loss(x, x, **options)",
    "out = x.sum(1)",
    "def own(a):\n    b = a.sum()\n    b = a * b\n    return b\nout = own(x)",
    "def own(a):\n    b = a.sum()\n    if y:\n        b = a\n    return b\nout = own(x)",
    "def own(a):\n    b = a\n    if y:\n        b = a.sum()\n    return b\nout = own(x)",
    "out = x.sum() * x",
    "out = x.sum() if y else x",
    "out = x.sum()\nout = x",
    "out = nn.DataParallel(nn.MSELoss())(x, x)",  # one for each GPU
    "def total(a):\n    if y:\n        return a\n    return a.sum()\nout = total(x)",
    "class Meter:\n    def sum(self):\n        return x\nout = Meter().sum()",
    "out = x\nout = f(x)\nout.backward(x)",
    "out = f(x)\nprint(out)\nout = g(out)\nout.backward()",
    "out = net(x)\nprint(out)\nout = f(x)\nout.backward()",
]


@pytest.mark.parametrize("lines", NOT_SHOWN)
def test_an_element_is_taken_otherwise(lines: str) -> None:
    assert migrated(f"{HEAD}{lines}\ny = out.data[0]\n").endswith("y = out.data[0]\n")


@pytest.mark.parametrize(
    "lines, outcome",
    [
        ("loss = criterion(x)\ny = loss.data[0]", "reported"),
        ("y = FocalLoss()(x).data[0]", "reported"),
        ("y = losses[name].data[0]", "reported"),
        ("criterion = criterion.cuda()\ny = criterion(x, x).data[0]", "reported"),
        ("loss = nn.MSELoss()(x, x)\nloss.data[0] = 1", "reported"),
        ("loss = nn.MSELoss()(x, x)\nloss.data[0] = 1  # tpu-migrate: ignore[UPG005]", "kept"),
    ],
)
def test_what_may_be_a_loss_is_reported(lines: str, outcome: str) -> None:
    found = constructs(run(f"{HEAD}{lines}\n"))
    assert [str(d.outcome) for d in found if d.code == "UPG005"] == [outcome]


def test_a_criterion_is_known_where_it_is_given(tmp_path: Path) -> None:
    """As in the examples of PyTorch: training asks for gradients, and validation doesn't."""
    focal = """
    import torch.nn as nn

    class FocalLoss(nn.Module):
        def forward(self, x, y):
            loss = (1 - x) * y
            if self.size_average:
                return loss.mean()
            else:
                return loss.sum()
    """
    train = """
    import torch
    import torch.nn as nn
    from focal import *

    def validate(loader, criterion, other):
        for x, y in loader:
            print(criterion(x, y).data[0], other(x.cuda(), y).data[0])

    def main():
        criterion = nn.CrossEntropyLoss().cuda()
        other = FocalLoss()
        validate(data, criterion, other=other)

    if __name__ == "__main__":
        main()
    """
    write_tree(tmp_path, {"focal.py": dedent(focal), "train.py": dedent(train)})
    cli("train.py", "--target", "torchax", "--allow-dirty", cwd=tmp_path)
    text = (tmp_path / "train.py").read_text()
    assert 'print(criterion(x, y).item(), other(x.to("jax"), y).item())' in text


TABLES = (
    "y = sum(each.data[0] for each in losses.values())\n",
    "for name, each in losses.items():\n    print(name, each.data[0])\n",
    "for each in self.losses.values():\n    print(np.array(each.data)[0])\n",
    "y = np.array(losses['a'].data)[0]\n",
    "y = losses['a'].data[0]\n",
)


@pytest.mark.parametrize("read", TABLES)
def test_losses_of_a_table_are_reported(read: str) -> None:
    text = f"import numpy as np\n{HEAD}losses = criterion(x, x)\n{read}"
    told = [d for d in constructs(run(text)) if d.code == "UPG005"]
    assert [d.outcome for d in told] == [Outcome.REPORTED] and ".item()" in told[0].message
    assert not [d for d in constructs(run(text.replace("losses", "parts"))) if d.code == "UPG005"]


def test_an_array_of_a_number_has_no_first_element() -> None:
    text = f"import numpy as np\n{HEAD}loss = nn.MSELoss()(x, x)\ny = np.array(loss.data)[0]\n"
    assert migrated(text).endswith("y = loss.item()\n")
    several = f"import numpy as np\n{HEAD}rows = x * 2\ny = np.array(rows.data)[0]\n"
    assert migrated(several).endswith("y = np.array(rows.data)[0]\n")
