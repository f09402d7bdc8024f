"""Ranks of torchrun that accelerate joins: they train as by gloo on the CPU, and not each alone."""

import os
import subprocess
import sys
from pathlib import Path

import tpu_runtime

PROGRAM = """\
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
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
losses = accelerator.gather(loss.detach().reshape(1)).tolist()
accelerator.print(accelerator.num_processes, len(loader), *(f"{loss:.5f}" for loss in losses))
"""


def printed(script: Path, *args: str) -> list[str]:
    """The last line of two ranks."""
    path = str(Path(tpu_runtime.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2",
         "--master_port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
         str(script), *args],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


def test_ranks_that_accelerate_joins(tmp_path: Path) -> None:
    original, migrated = tmp_path / "original.py", tmp_path / "migrated.py"
    original.write_text(PROGRAM)
    begin = PROGRAM.index("accelerator = ")
    set_up = "import tpu_runtime\ntpu_runtime.setup()\n"
    migrated.write_text(PROGRAM[:begin] + set_up + PROGRAM[begin:])
    expected = printed(original, "cpu")
    assert expected[:2] == ["2", "3"]
    assert printed(migrated) == expected
