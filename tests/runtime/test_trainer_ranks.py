"""Ranks of a launcher that a framework joins train as by gloo on the CPU, and not each alone."""

from pathlib import Path

import pytest
from target import TARGET

from tests.runtime.several_devices import execute
from tests.runtime.support import RUNTIME

ACCELERATE = """\
import os
import sys
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu="cpu" in sys.argv)
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
data = TensorDataset(torch.randn(24, 8), torch.randint(0, 4, (24,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
losses = accelerator.gather(loss.detach().reshape(1)).tolist()
accelerator.print("ended", accelerator.num_processes, len(loader), *(f"{x:.5f}" for x in losses))
"""
TRAINER = """\
import os
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=16,
)
model = LlamaForCausalLM(config)
data = [{"input_ids": line, "labels": line} for line in torch.randint(0, 64, (24, 16))]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, per_device_eval_batch_size=4, num_train_epochs=2,
    learning_rate=1e-2, logging_steps=1, report_to=[], eval_strategy="epoch", save_strategy="epoch",
    disable_tqdm=True, use_cpu="cpu" in sys.argv,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:10])
trainer.train()
logged = ("loss", "grad_norm", "eval_loss")
values = [entry[name] for entry in trainer.state.log_history for name in logged if name in entry]
values.append(sum(p.detach().abs().sum().item() for p in model.parameters()) / 100)
if arguments.process_index == 0:
    print("ended", arguments.world_size, len(values), *(f"{x:.5f}" for x in values))
"""
LIGHTNING = """\
import os
import sys
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

    def step(self, batch, name):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log(name, loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def training_step(self, batch, _):
        return self.step(batch, "loss")

    def validation_step(self, batch, _):
        self.step(batch, "validated")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 8), torch.randint(0, 4, (32,)))
trainer = L.Trainer(
    accelerator="tpu", devices=2, strategy="ddp", max_epochs=2, gradient_clip_val=1.0,
    enable_progress_bar=False, enable_model_summary=False, logger=False,
)
net = Net()
trainer.fit(net, DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=4))
values = [*trainer.callback_metrics.values(), sum(p.detach().abs().sum() for p in net.parameters())]
if trainer.global_rank == 0:
    print("ended", trainer.world_size, *(f"{float(value):.5f}" for value in values))
"""
FABRIC = """\
import os
import sys
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

fabric = L.Fabric(accelerator="tpu", devices=2, strategy="ddp")
fabric.launch()
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 8), torch.randint(0, 4, (32,)))
net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
net, optimizer = fabric.setup(net, optimizer)
loader = fabric.setup_dataloaders(DataLoader(data, batch_size=4, shuffle=True))
for i, (x, y) in enumerate(loader):
    with fabric.no_backward_sync(net, enabled=i % 2 == 0):
        loss = nn.functional.cross_entropy(net(x), y)
        fabric.backward(loss)
    if i % 2:
        fabric.clip_gradients(net, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
values = [fabric.all_reduce(loss.detach()), sum(p.detach().abs().sum() for p in net.parameters())]
if fabric.global_rank == 0:
    print("ended", fabric.world_size, len(loader), *(f"{float(value):.5f}" for value in values))
"""
SET_UP = "import tpu_runtime\ntpu_runtime.setup()\n"
# without taking Python down, whose lock a thread of gloo may want by then
LEAVE = "sys.stdout.flush()\nos._exit(0)\n"


def ended(printed: str) -> list[str]:
    """What the first of two ranks says at its end."""
    return next(line for line in printed.splitlines() if line.startswith("ended")).split()


def torchrun(script: Path, *arguments: str, **variables: str) -> str:
    """What two processes print."""
    launcher = "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')"
    run = script.parent / "torchrun.py"
    run.write_text(launcher)
    given = ["--nproc-per-node=2", "--standalone", "--", script, *arguments]
    return execute(run, *given, OMP_NUM_THREADS="1", **variables)


def launched(script: Path) -> str:
    """What two ranks of the target print."""
    path = {"PYTHONPATH": str(RUNTIME)}
    if TARGET == "torchax":
        return torchrun(script, **path)
    from migrator.targets.torch_xla import replicas

    devices = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "2"}
    return execute(Path(replicas.__file__), "--each", script, **devices, **path)


def after_set_up(program: str, line: str) -> str:
    """A program with set-up in front of a line."""
    begin = program.index(line)
    return program[:begin] + SET_UP + program[begin:]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "line", "count"),
    [(ACCELERATE, "accelerator = ", "3"), (TRAINER, "torch.manual_seed", "15")],
    ids=["loop", "Trainer"],
)
def test_ranks_that_accelerate_joins(
    program: str, line: str, count: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where checkpoints go
    original, migrated = tmp_path / "original.py", tmp_path / "migrated.py"
    original.write_text(program + LEAVE)
    migrated.write_text(after_set_up(program, line))
    expected = ended(torchrun(original, "cpu", USE_TORCH_XLA="0"))
    assert expected[:3] == ["ended", "2", count]
    assert ended(launched(migrated)) == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "line"),
    [(LIGHTNING, "class Net"), (FABRIC, "fabric = ")],
    ids=["Trainer", "Fabric"],
)
def test_ranks_of_lightning(
    program: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where checkpoints go
    original, migrated = tmp_path / "original.py", tmp_path / "migrated.py"
    original.write_text(program.replace('"tpu"', '"cpu"') + LEAVE)
    migrated.write_text(after_set_up(program, line))
    expected = ended(torchrun(original))
    assert expected[:2] == ["ended", "2"] and len(expected) >= 5
    assert ended(launched(migrated)) == expected
