"""Anybody's script on the real target of this environment: agreement, and planted faults."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from migrator import migrate_paths
from migrator.verify.recordings import Settings
from migrator.verify.script import ScriptResult, hold, record_script
from migrator.verify.verification import Options

TARGET = os.environ.get("TPU_MIGRATE_TARGET", "")

SCRIPT = """\
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.query = nn.Linear(size, size)
        self.out = nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, mask):
        scores = self.query(x) @ x.transpose(1, 2)
        scores = scores.masked_fill(mask, -1e4)
        x = x + self.out(torch.softmax(scores, dim=-1) @ x)
        return self.drop(self.norm(x.transpose(1, 2)).transpose(1, 2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.block = Block(8)
        self.last = nn.Linear(8, 2)

    def forward(self, x, mask):
        return self.last(self.block(self.first(x), mask).mean(1))


net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
mask = torch.triu(torch.ones(5, 5, dtype=torch.bool, device=device), 1)
scale = 1.0
for step in range(4):
    x = torch.randn(6, 5, 3, device=device)
    y = torch.randint(0, 2, (6,)).to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x, mask) * scale, y)
    loss.backward()
    optimizer.step()
    scale = 1.0 + 0.1 * step
    print(f"step {step} loss {loss.item():.5f}")
net.eval()
with torch.no_grad():
    print("mean", net(torch.randn(6, 5, 3, device=device), mask).mean().item())
torch.save({"net": net.state_dict()}, "net.pt")
"""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A golden of the script, recorded by the CPU in the place of a GPU."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        recording, notes = record_script(
            Path("train.py"), [], folder / "golden", Path(sys.executable), Settings()
        )
    finally:
        os.chdir(before)
    assert recording.steps == 4
    assert [e["kind"] for e in recording.events].count("loss") == 4
    assert [f["name"] for f in recording.files] == ["net.pt"]
    assert notes == ["dropout is off in all runs (--dropout draws the same masks in all)"]
    return folder / "golden"


@pytest.fixture
def verify(golden: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptResult]:
    monkeypatch.chdir(golden.parent)

    def run(*edits: tuple[str, str], **how: object) -> ScriptResult:
        options = Options(python=Path(sys.executable), migrate=partial(_with, edits))
        return hold(Path("train.py"), [], TARGET, golden, Settings(), options)

    return run


def _with(edits: tuple[tuple[str, str], ...], source: Path, target: str, to: Path) -> list[str]:
    """The migration, with a fault in what it writes."""
    report = migrate_paths([source], target=target, output=to)
    text = (to / "train.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text, text
        text = text.replace(old, new)
    (to / "train.py").write_text(text, encoding="utf-8")
    return report.errors


def test_a_migrated_script_computes_what_the_original_does(
    verify: Callable[..., ScriptResult],
) -> None:
    result = verify()
    assert result.passed, (result.error, result.problems, result.stepwise.first, result.log_tail)
    kinds = {f.kind for f in result.stepwise.findings}
    assert kinds == {"start", "input", "output", "loss", "gradients", "end", "file", "printed"}
    if TARGET == "torchax":
        assert {f.kind for f in result.compiled.findings} == {"end", "file", "printed"}


@pytest.mark.parametrize(
    ("edit", "kind", "name"),
    [
        # a dropped gradient: the outputs of the first step agree
        (("self.first(x), mask)", "self.first(x).detach(), mask)"), "gradients", "Net.first"),
        # a wrong mask
        (("masked_fill(mask,", "masked_fill(mask.transpose(0, 1),"), "output", ""),
        # a product in bfloat16
        (("self.query(x) @ x.transpose(1, 2)",
          "(self.query(x).bfloat16() @ x.transpose(1, 2).bfloat16()).float()"), "output", ""),
        # a constant of the first step
        (("scale = 1.0 + 0.1 * step", "scale = 1.0"), "loss", ""),
        # statistics that do not move
        (("self.norm = nn.BatchNorm1d(size)",
          "self.norm = nn.BatchNorm1d(size, momentum=0.0)"), "output", ""),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found_where_it_shows_first(
    verify: Callable[..., ScriptResult], edit: tuple[str, str], kind: str, name: str
) -> None:
    result = verify(edit)
    assert result.error is None and not result.passed, result
    first = result.stepwise.first
    assert first is not None
    assert first.kind == kind, first
    assert name in f"{first.name}.{first.place}"
