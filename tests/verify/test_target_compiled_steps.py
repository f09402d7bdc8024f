"""Steps that torchax compiles as a whole, and what the verification of a script sees of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import COPY
from target import TARGET

from migrator import migrate_paths
from migrator.frameworks import find_framework
from migrator.verify.recordings import Recording, RecordSettings, record_run

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


LOOP = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)
net = nn.Sequential(*layers).cuda()
scale = torch.ones(3, requires_grad=True, device="cuda")
optimizer = torch.optim.Adam([*net.parameters(), scale], lr=0.1)
for number in range(6):
    for _ in range(2):
        loss = net(torch.randn(6, 3).cuda() * scale).pow(2).mean() / 2
        loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if number % 2:
        print(loss.item())
net.eval()
with torch.no_grad():
    for _ in range(3):
        print(net(torch.randn(6, 3).cuda()).sum().item())
"""


def test_the_recorder_sees_the_programs_that_run_without_it(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(LOOP, encoding="utf-8")
    migrated = tmp_path / "migrated"
    migrate_paths([tmp_path / "t.py"], target="torchax", config=COPY, output=migrated)
    report = tmp_path / "report.json"
    env = {**os.environ, "TPU_RUNTIME_REPORT": str(report)}
    subprocess.run([sys.executable, "t.py"], cwd=migrated, env=env, check=True, timeout=300)
    alone = functions_of(report)
    assert alone["recorded steps"]["calls"] >= 6

    def recorded(name: str, **env: str) -> Recording:
        return record_run(
            Path(sys.executable), "t.py", [], migrated, tmp_path / name, RecordSettings(),
            framework=find_framework("torch"), stand_in=False, original=migrated, closely=False,
            env={"TPU_RUNTIME_REPORT": str(report), **env},
        )[1]  # fmt: skip

    seen = recorded("recorded")
    assert functions_of(report) == alone
    at_once = recorded("at_once", TPU_RUNTIME_EAGER="1")
    assert not seen.ended and not at_once.ended
    assert [event["kind"] for event in seen.events].count("loss") == 12
    for event, expected in zip(seen.events, at_once.events, strict=True):
        for name in ("kind", "name", "line", "loop", "step", "dtype", "dtypes", "tensors"):
            assert event.get(name) == expected.get(name)
        assert event.get("value", 0.0) == pytest.approx(expected.get("value", 0.0), rel=1e-5)
        assert event.get("norms", {}) == pytest.approx(expected.get("norms", {}), rel=1e-4)


def functions_of(report: Path) -> dict[str, Any]:
    functions = json.loads(report.read_text("utf-8"))["functions"]
    return {found["name"]: found for found in functions if found["calls"]}
