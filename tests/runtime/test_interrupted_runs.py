"""A run that a GPU began goes on after the migration, and the GPU goes on with what that leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import COPY
from target import TARGET

from migrator import migrate_paths

if TARGET not in ("torchax", "torch_xla"):
    pytest.skip("needs an environment of a target", allow_module_level=True)

STAND_IN = (
    Path(__file__).resolve().parents[2] / "migrator" / "verify" / "recorder" / "cpu_stand_in.py"
)
SCRIPT = """
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

resume, save, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
shuffle = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True, generator=shuffle)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
net = torch.compile(net, backend="eager")
decayed = [p for name, p in net.named_parameters() if name.startswith("_orig_mod.0")]
others = [p for name, p in net.named_parameters() if not name.startswith("_orig_mod.0")]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others}]
optimizer = torch.optim.AdamW(groups, lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
scaler = torch.cuda.amp.GradScaler()
start = 0
if resume != "-":
    state = torch.load(resume, map_location=device)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    scaler.load_state_dict(state["scaler"])
    shuffle.set_state(state["shuffle"].cpu())
    torch.set_rng_state(state["random"].cpu())
    start = state["epoch"]
losses = []
for epoch in range(start, start + epochs):
    for x, y in loader:
        x, y = (x + 0.1 * torch.randn(x.shape)).to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    scheduler.step()
torch.save({
    "net": net.state_dict(), "optimizer": optimizer.state_dict(),
    "scheduler": scheduler.state_dict(), "scaler": scaler.state_dict(),
    "shuffle": shuffle.get_state(), "random": torch.get_rng_state(), "epoch": start + epochs,
}, save)
print(json.dumps(losses))
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The GPU original, and the migrated program."""
    folder = tmp_path_factory.mktemp("interrupted")
    (folder / "gpu").mkdir()
    (folder / "gpu" / "train.py").write_text(SCRIPT)
    report = migrate_paths([folder / "gpu"], TARGET, config=COPY, output=folder / "tpu")
    assert report.exit_code == 0
    return folder / "gpu" / "train.py", folder / "tpu" / "train.py"


def losses(script: Path, resume: Path | str, save: Path, epochs: int) -> list[float]:
    stand_in = [str(STAND_IN)] if script.parent.name == "gpu" else []
    done = subprocess.run(
        [sys.executable, *stand_in, script.name, str(resume), str(save), str(epochs)],
        cwd=script.parent, capture_output=True, text=True, timeout=900, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_both_ways(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    gpu, tpu = scripts
    whole = losses(gpu, "-", tmp_path / "whole", 6)
    begun = losses(gpu, "-", tmp_path / "begun", 2)
    on_tpu = losses(tpu, tmp_path / "begun", tmp_path / "on_tpu", 2)
    ended = losses(gpu, tmp_path / "on_tpu", tmp_path / "ended", 2)
    assert [*begun, *on_tpu, *ended] == pytest.approx(whole, rel=3e-5, abs=3e-6)


def test_a_checkpoint_holds_what_the_gpus_held(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    import torch

    gpu, tpu = scripts
    losses(gpu, "-", tmp_path / "gpu", 1)
    losses(tpu, "-", tmp_path / "tpu", 1)
    old, new = (torch.load(tmp_path / name, map_location="cpu") for name in ("gpu", "tpu"))
    for part in ("net", "scheduler", "scaler"):
        assert list(new[part]) == list(old[part])
    assert all(name.startswith("_orig_mod.") for name in new["net"])
    assert torch.equal(new["shuffle"].cpu(), old["shuffle"].cpu())
