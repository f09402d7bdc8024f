"""A prediction of shape (n, 1) and a target of shape (n,): once a warning, now an error."""

import pytest
import torch
from helpers import constructs, run

NET = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 1)

    def forward(self, x):
        x = F.sigmoid(self.last(x))
        return x@TAIL@

net = D().cuda()
loss = nn.BCELoss()
x = torch.rand(4, 2).cuda()
n = x.size()[0]
"""
TARGET = "target = torch.ones(n)\ntarget = torch.autograd.Variable(target.cuda())\n"


def _code(lines: str, tail: str = "") -> str:
    return f"{NET.replace('@TAIL@', tail)}{TARGET}{lines}\n"


@pytest.mark.parametrize(
    "lines",
    ["out = net(x)\nloss(out, target)", "F.binary_cross_entropy(net(x), target)",
     "loss(net(x), torch.zeros(x.size(0)).cuda())"],
)  # fmt: skip
def test_different_shapes_are_reported(lines: str) -> None:
    found = [d for d in constructs(run(_code(lines))) if d.code == "UPG005"]
    assert [str(d.outcome) for d in found] == ["reported"]
    with pytest.raises(ValueError, match="target size"):
        exec(_code(lines).replace(".cuda()", ""), {"torch": torch})


@pytest.mark.parametrize(
    ("lines", "tail"),
    [
        ("loss(net(x), target)", ".squeeze(1)"),
        ("loss(net(x).squeeze(1), target)", ""),
        ("loss(net(x), target.unsqueeze(1))", ""),
        ("loss(net(x), torch.ones(n, 1).cuda())", ""),
        ("loss(other(x), target)", ""),
        ("loss(net(x), given)", ""),
    ],
)
def test_others_are_not(lines: str, tail: str) -> None:
    assert not [d for d in constructs(run(_code(lines, tail))) if d.code == "UPG005"]


CHARACTERS = """\
import torch
import torch.nn as nn

class RNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.out = nn.Linear(4, 5)

    def forward(self, x, hidden):
        hidden = output = self.cell(x.view(1, -1), hidden)
        output = self.out(output.view(@ROWS@, -1))
        return output, hidden

net = RNN().cuda()
loss = nn.CrossEntropyLoss()
x, hidden = torch.rand(3, 4).cuda(), torch.zeros(1, 4).cuda()
target = torch.zeros(3).long().cuda()
for c in range(3):
    output, hidden = net(x[c], hidden)
    loss(@GIVEN@)
"""


@pytest.mark.parametrize("given", ["output, target[c]", "output, target[c].unsqueeze(0)"])
def test_an_element_is_no_row(given: str) -> None:
    source = CHARACTERS.replace("@ROWS@", "1").replace("@GIVEN@", given)
    found = [d.message for d in constructs(run(source)) if d.code == "UPG005"]
    code = source.replace(".cuda()", "")
    if "unsqueeze" in given:
        assert not found
        exec(code, {})
    else:
        assert len(found) == 1 and "target[c].unsqueeze(0)" in found[0]
        with pytest.raises(ValueError, match="batch_size"):
            exec(code, {})


@pytest.mark.parametrize(
    ("rows", "given"),
    [("2", "output, target[c]"), ("1", "output[0], target[c]"), ("1", "output, target[c:c + 1]")],
)
def test_other_elements_may_fit(rows: str, given: str) -> None:
    source = CHARACTERS.replace("@ROWS@", rows).replace("@GIVEN@", given)
    assert not [d for d in constructs(run(source)) if d.code == "UPG005"]
