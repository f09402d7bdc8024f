"""Steps that torchax compiles as a whole, and what the verification of a script sees of them."""

from pathlib import Path

import pytest
from target import TARGET

from .small_scripts import held

pytestmark = pytest.mark.skipif(
    TARGET != "torchax", reason="nothing is compiled as a whole elsewhere"
)


def test_what_is_not_compiled_as_a_whole_is_told_and_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.line(x * 2 if x.sum().item() > 0 else x)


net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    for part in torch.randn(6, 3).cuda().chunk(2):
        net(part).pow(2).mean().backward()
    optimizer.step()
"""
    found = held(tmp_path, text, roundings=1)
    assert found.passed, (found.error, found.problems, found.compiled.first, found.log_tail)
    told = [note for note in found.notes if "not compiled as a whole" in note]
    assert any(note.startswith("slower than it could be: Net ") for note in told), found.notes
    assert len(found.compiled.losses) == 6


@pytest.mark.thorough
def test_quick_ends_before_the_next_step_of_what_is_compiled_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forward pass of the step that is one too many moves the statistics of BatchNorm."""
    monkeypatch.chdir(tmp_path)
    text = """\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
seen = []
for _ in range(8):
    loss = net(torch.randn(6, 3).cuda()).pow(2).mean()
    seen.append(loss.item() > 0.5)
    optimizer.zero_grad()
    loss.backward()
    if seen[-1] or True:
        optimizer.step()
"""
    found = held(tmp_path, text, roundings=0, quick=True)
    assert found.passed, (found.error, found.problems, found.compiled.first, found.log_tail)
    ends = {f.place for f in found.compiled.findings if f.kind == "end"}
    assert "1.num_batches_tracked" in ends


@pytest.mark.parametrize("cleared", ["None", "zeros"])
def test_gradients_that_are_cleared_behind_a_compiled_step_are_none_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleared: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"""\
import torch

net = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.randn(6, 3).cuda()).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad({"" if cleared == "None" else "set_to_none=False"})
"""
    found = held(tmp_path, text, roundings=0)
    assert found.passed, (found.error, found.problems, found.compiled.first, found.log_tail)
    assert {f.kind for f in found.compiled.findings} >= {"loss", "end"}
