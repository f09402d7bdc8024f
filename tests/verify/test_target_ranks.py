"""A script with several ranks on the real target: each is compared with that of the original."""

import socket
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers import COPY
from target import TARGET

from migrator import migrate_paths
from migrator.targets import find_target
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

ON_TARGET = find_target(TARGET)
SECOND_TIER = pytest.mark.thorough
# Each takes half a minute. In the first tier: what agrees, on one target; a fault, on the other.
FAULT, AGREES = ([], SECOND_TIER) if TARGET == "torch_xla" else (SECOND_TIER, [])

TRAINING = """\
import argparse
import os
import random

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(rank, world_size):
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    data = TensorDataset(torch.randn(16, 8), torch.randint(0, 3, (16,)))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    model = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in DataLoader(data, batch_size=2, sampler=sampler):
        x = x + random.random() + numpy.random.rand()  # which nobody has seeded
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        print(f"rank {rank} loss {loss.item():.4f} mean {mean.item() / world_size:.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "net.pt")
    dist.destroy_process_group()
"""
SPAWNED = """

def main(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "@PORT@"
    assert mp.get_start_method() == "fork"  # workers of loaders draw as in other runs
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    train(rank, world_size)


if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(main, args=(count,), nprocs=count)
"""
LAUNCHED = """

if __name__ == "__main__":
    dist.init_process_group("nccl")
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=int(os.environ["LOCAL_RANK"]))
    train(parser.parse_args().local_rank, dist.get_world_size())
"""
LIGHTNING = """\
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 3)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = TensorDataset(torch.randn(16, 8), torch.randint(0, 3, (16,)))
trainer = L.Trainer(
    accelerator="gpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
)
trainer.fit(Net(), DataLoader(data, batch_size=2, shuffle=True))
"""

SHARDED = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).cuda()
model = FullyShardedDataParallel(net, device_id=rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = ShardedGradScaler()
for step in range(4):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank)).cuda()
    optimizer.zero_grad()
    loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
"""


def on_two(
    text: str, old: str = "", new: str = "", *arguments: str, module: bool = False
) -> ScriptResult:
    """Verify a script in the current folder on two devices; an edit plants a fault."""
    with socket.socket() as free:  # other tests may run at the same time
        free.bind(("", 0))
        text = text.replace("@PORT@", str(free.getsockname()[1]))
    if module:
        Path("package").mkdir()
        for name in ("__init__", "other"):
            Path(f"package/{name}.py").touch()
        text = f"import package\nfrom . import other\n{text}"
    script = Path("package/train.py" if module else "train.py")
    script.write_text(text, encoding="utf-8")
    options = RunOptions(
        python=Path(sys.executable), devices=2, migrate=partial(migrated, script, old, new)
    )  # fmt: skip
    settings = RecordSettings(roundings=0)
    named = Path("package.train") if module else script
    return verify_against(named, arguments, ON_TARGET, None, settings, options, module=module)


def migrated(script: Path, old: str, new: str, source: Path, target: str, to: Path) -> list[str]:
    report = migrate_paths([source], target=target, config=COPY, output=to)
    text = (to / script).read_text(encoding="utf-8")
    assert old in text, text
    (to / script).write_text(text.replace(old, new), encoding="utf-8")
    return report.errors


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(SPAWNED, id="spawned", marks=AGREES),
        pytest.param(LAUNCHED, id="launched", marks=SECOND_TIER),
    ],
)
def test_each_rank_is_compared(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    option = ["--local_rank={rank}"] if end == LAUNCHED else []  # as torch.distributed.launch did
    result = on_two(TRAINING + end, "", "", *option, module=end == LAUNCHED)
    assert result.passed, (result.error, result.problems, result.log_tail)
    assert "each of 2 ranks is compared with the same rank" in result.notes
    assert "a stand-in for SyncBatchNorm computes the same" in " ".join(result.notes)
    found = [f for part in (result.compiled, result.stepwise) for f in part.findings]
    for rank in (0, 1):
        names = {(f.kind, f.name) for f in found if f.name.startswith(f"rank {rank}: ")}
        assert ("end", f"rank {rank}: Sequential") in names
        assert ("gradients", f"rank {rank}: SGD") in names
    assert [f.name for f in found if f.kind == "file"] == ["net.pt"] * 9
    assert len([f for f in found if f.kind == "printed"]) == 2 * 4 * 3  # of both ranks


@SECOND_TIER
@pytest.mark.parametrize("kind", ["FullyShardedDataParallel", "fully_shard"])
def test_what_the_original_divides_among_its_ranks(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared as a whole, with what each rank of the migrated script has."""
    monkeypatch.chdir(tmp_path)
    text = SHARDED
    if kind == "fully_shard":
        text = text.replace("model = FullyShardedDataParallel(net, device_id=rank)",
                            "model = fully_shard(net)")  # fmt: skip
    result = on_two(text)
    assert result.passed, (result.error, result.problems, result.log_tail)
    parts = (result.compiled, result.stepwise)
    found = {(f.kind, f.place) for part in parts for f in part.findings}
    assert {("end", "2.weight"), ("weights", "0.bias")} <= found


@SECOND_TIER
def test_ranks_of_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = on_two(LIGHTNING)
    assert result.passed, (result.error, result.problems, result.log_tail)
    found = [f.name for part in (result.compiled, result.stepwise) for f in part.findings]
    assert {"rank 0: loss", "rank 1: loss"} <= {*found}


@pytest.mark.parametrize("end", [pytest.param(LAUNCHED, id="launched", marks=FAULT)])
def test_a_fault_of_one_rank_is_found(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second rank of the migrated script takes the samples of the first."""
    monkeypatch.chdir(tmp_path)
    alone = "nn.SyncBatchNorm.convert_sync_batchnorm(model)"  # carries a fault to all ranks
    text = TRAINING.replace(alone, "model") + end
    result = on_two(text, "num_replicas=world_size, rank=rank", "world_size, 0")
    assert not result.passed
    wrong = [f for f in (*result.compiled.findings, *result.stepwise.findings) if not f.passed]
    first = [f.name for f in wrong if f.kind == "loss" and f.step == 0]
    assert set(first) == {"rank 1: loss"}


@pytest.mark.skipif(TARGET != "torchax", reason="the original is the same for each target")
def test_a_rank_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fault = '    device = torch.device("cuda", rank)\n'
    text = (TRAINING + SPAWNED).replace(fault, fault + "    assert rank == 0, 'no data'\n")
    result = on_two(text)
    assert result.error is not None
    line = text[: text.index("assert")].count("\n") + 1
    said = f"the original fails: rank 1: train.py:{line}: AssertionError: no data"
    assert said in result.error
