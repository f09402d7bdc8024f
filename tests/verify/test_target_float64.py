"""Scripts in float64, on the target of this environment: what differs then is not rounding."""

from pathlib import Path

import pytest
from tiers import thorough_on

from migrator.verify.script_table import verdict

from .small_scripts import held
from .support import record

# The gradient of a difference of squares: float32 has three digits of it, and no layer computes it,
# so that runs with different rounding show nothing of that.
CANCELS = """\
import sys, torch
torch.manual_seed(0)
x = (torch.randn(4000) + 1000).cuda()
w = torch.nn.Parameter(torch.ones((), device="cuda"))
optimizer = torch.optim.SGD([w], lr=1e-9)
for step in range(2):
    y = x * w
    loss = (y * y).mean() - y.mean() ** 2
    loss = {change}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# Float32, halves and integers from everywhere; printed with more digits than
# float32 has.
EVERYWHERE = """\
import sys
import numpy as np, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
net = net.float().cuda()
data = torch.from_numpy(np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)).cuda()
more = torch.tensor([1, 2, 3], device="cuda").float().mean() * torch.ones(3, dtype=torch.float32)[0]
half = torch.tensor([0.1, 0.2, 0.3, 0.4], device="cuda").to(torch.bfloat16)
with torch.autocast("cuda", torch.bfloat16, {autocast}), torch.cuda.amp.autocast({autocast}):
    out = net(data + half) * more.cuda()
out[out > 0.5] *= 1 + {fault}
loss = out.pow(2).mean() + torch.randn(3, device="cuda").mean()
scaler = torch.cuda.amp.GradScaler()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
scaler.update()
for number in (loss, net[0].weight.grad.norm(), half.float().sum()):
    print(f"{{number.item():.12f}}")
"""
FAULT = "1e-6 * ('tpu_runtime' in sys.modules)"


@thorough_on("torch_xla")
@pytest.mark.parametrize("change, passes, said", [
    ("loss", True, "rounding: in float64, all "),
    ("loss * 1.2 if HERE else loss", False, "differ, too, first "),
    # float32 rounded to 12 bits: in float64, nothing is rounded
    ("(loss * 4096).float().round() / 4096 if HERE and y.dtype == torch.float32 else loss", False,
     "times less exact here"),
])  # fmt: skip
def test_what_differs_is_decided_in_float64(
    change: str, passes: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = CANCELS.format(change=change.replace("HERE", "'tpu_runtime' in sys.modules"))
    found = held(tmp_path, text, roundings=1)
    assert found.error is None and not found.problems, (found.error, found.problems)
    assert found.float64 is not None, (found.notes, found.compiled.findings)
    assert found.passed == passes and said in verdict(found), verdict(found)
    assert found.to_dict()["float64"]["compared"] > 2


@pytest.mark.parametrize("fault", ["0", FAULT])
def test_in_float64_a_fault_that_rounding_would_hide_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = held(tmp_path, EVERYWHERE.format(fault=fault, autocast=True), roundings=1, float64=True)
    assert found.error is None and not found.problems, (found.error, found.problems)
    assert found.passed == (fault == "0"), (found.compiled.first, found.stepwise.first)
    losses = [abs(theirs - ours) for theirs, ours in found.losses]
    assert max(losses) < 1e-8 if fault == "0" else max(losses) > 1e-7


@thorough_on("torch_xla")
def test_without_float64_it_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = EVERYWHERE.format(fault=FAULT, autocast=False).replace(":.12f", ":.3f")
    found = held(tmp_path, text, roundings=3)
    assert found.passed, (verdict(found), found.stepwise.first)


def test_a_recording_in_float64_has_the_random_numbers_of_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """\
import torch
torch.manual_seed(3)
x = torch.randn(4, 3) + torch.rand(4, 3) + torch.empty(4, 3).exponential_()
x = x * torch.bernoulli(torch.full((4, 3), 0.5)) + torch.randint(0, 9, (4, 3))
x = torch.normal(x, 1.0)[torch.randperm(4)] + torch.randn_like(x).uniform_(1, 2)
torch.nn.Linear(3, 2).cuda()(x.cuda()).pow(2).mean().backward()
"""
    losses = []
    for folder in ("float32", "float64"):
        (tmp_path / folder / "project").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / folder / "project")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / folder))
        recording, _ = record(text, float64=folder == "float64")
        losses += [event["value"] for event in recording.events if event["kind"] == "loss"]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6) and losses[1] != losses[0]
