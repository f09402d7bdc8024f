"""Scripts on the real torch_tpu, by XLA's CPU client: what differs is found, and nothing else."""

from __future__ import annotations

import ast
import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import COPY

from migrator import migrate_paths
from migrator.targets import find_target
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

TARGET = find_target("torch_tpu")
SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 3)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = F.avg_pool1d(torch.relu(self.norm(self.conv(x))), 2)
        x = self.drop(x).transpose(1, 2)[:, None]
        x = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return self.out(x[:, 0].cumsum(1).mean(1))


torch.manual_seed(0)
model = Block().cuda() if torch.cuda.is_available() else Block()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(16, 4, 12), torch.randint(0, 3, (16,))
for step in range(3):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print(f"score {model(x.to(device)).sum().item():.3f}")
torch.save(model.state_dict(), "model.pt")
"""


def verified(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = SCRIPT, **options: object
) -> ScriptResult:
    (folder / "train.py").write_text(script)
    monkeypatch.chdir(folder)
    how = RunOptions(python=Path(sys.executable), **options)  # type: ignore[arg-type]
    settings = RecordSettings(roundings=1)
    return verify_against(Path("train.py"), [], TARGET, None, settings, how)


def test_a_script_agrees_and_the_result_says_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = verified(tmp_path, monkeypatch)
    assert result.passed, (result.error, result.problems, result.log_tail)
    assert {"loss", "gradients", "weights", "buffers"} <= {f.kind for f in result.stepwise.findings}
    stand_in = TARGET.host.stand_in
    assert stand_in is not None and stand_in.says in result.notes
    assert result.device == "CPU back end of torch_tpu"


RANKS = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = nn.Linear(4, 2).cuda()
WRAPPED
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(8, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = loss.detach().clone()
dist.all_reduce(total)
print(f"loss {total.item() / dist.get_world_size():.5f}")
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "wrapped", ["model = DistributedDataParallel(model)", "fully_shard(model)"], ids=["ddp", "fsdp"]
)
def test_ranks_agree_in_a_world_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapped: str
) -> None:
    script = RANKS.replace("WRAPPED", wrapped)
    result = verified(tmp_path, monkeypatch, script, devices=1)
    assert result.passed, (result.error, result.problems, result.log_tail)
    assert {"loss", "gradients", "weights"} <= {f.kind for f in result.stepwise.findings}
    assert "a world of one rank: nothing is exchanged with another" in result.notes


def test_running_statistics_that_do_not_move_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of torch_tpu 0.2.0 without the runtime."""

    def without_runtime(source: Path, target: str, to: Path) -> list[str]:
        migrate_paths([source], target=target, config=COPY, output=to)
        file = to / "train.py"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if "tpu_runtime" not in line))
        return []

    result = verified(tmp_path, monkeypatch, migrate=without_runtime)
    assert not result.passed
    assert "buffers" in {f.kind for f in result.stepwise.findings if not f.passed}


OF_XLA = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def main(rank, seed):
    torch.manual_seed(seed)
    device = xm.xla_device()
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * xm.xrt_world_size())
    data = torch.randn(24, 4)
    for x in data.chunk(3):
        x = x.chunk(xm.xrt_world_size())[xm.get_ordinal()].to(device)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        xm.optimizer_step(optimizer)
    weights = [round(x, 5) for x in model.weight.flatten().tolist()]
    xm.master_print(weights)


if __name__ == "__main__":
    torch_xla.launch(main, args=(0,))
"""


def weights_of(command: list[str], folder: Path, **variables: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, *command, "train.py"], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **variables}, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return list(ast.literal_eval(line))


def test_a_program_that_torch_xla_started_runs_and_averages_gradients(tmp_path: Path) -> None:
    """In a world of one on torch_tpu, and of two processes on the CPU, by gloo."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/train.py").write_text(OF_XLA)
    migrate_paths([tmp_path / "a"], target="torch_tpu", config=COPY, output=tmp_path / "b")
    torch.manual_seed(0)
    expected = {}
    start, data = torch.nn.Linear(4, 2), torch.randn(24, 4)
    for ranks in (1, 2):
        model = copy.deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * ranks)
        for x in data.chunk(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        expected[ranks] = model.weight.flatten().tolist()
    alone = weights_of([], tmp_path / "b", **TARGET.host.on_cpu(1))
    assert alone == pytest.approx(expected[1], abs=2e-5)
    two = weights_of(
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"], tmp_path / "b",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )  # fmt: skip
    assert two == pytest.approx(expected[2], abs=2e-5)
