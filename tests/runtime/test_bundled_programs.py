"""A program runs with the files of the runtime that are written for it as it does with all."""

import subprocess
import sys
from pathlib import Path

import pytest
from target import TARGET, WORD
from tiers import thorough_but

from migrator import migrate_paths
from migrator.config import Config
from migrator.runs.bundle import bundle
from migrator.targets import targets

if TARGET not in ("torchax", "torch_xla"):
    pytest.skip("needs an environment of a target", allow_module_level=True)

MODEL = """import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.out = nn.Linear(8 * 9, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.out(F.avg_pool2d(x, 2, ceil_mode=True).flatten(1)[:, :72])


torch.manual_seed(0)
model = Net()
data = torch.randn(6, 3, 14, 14)
"""
SHOWN = "    print(*(f'{v:.9e}' for v in y.flatten().tolist()))\n"
PROGRAMS = {
    "inference": f"""{MODEL}
model = model.cuda().eval()
with torch.no_grad():
    y = model(data.cuda())
    y[0] += torch.linalg.pinv(torch.eye(5).cuda()).sum()
    y[:, 1].mul_(2)
{SHOWN}""",
    "loop": f"""{MODEL}
model = model.cuda().eval()
with torch.inference_mode():
    for x in data.split(2):
        y = model(x.cuda())
    {SHOWN}""",
    "training": f"""{MODEL}
model = model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
targets = torch.tensor([0, 1, 2, 3, 4, 0])
for step in range(4):
    x, t = data.cuda(), targets.cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), t)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    y = loss.detach()
{SHOWN}model.eval()
y = model(data.cuda())
if True:
{SHOWN}""",
    "names": f"""import torch
from torch import nn

torch.manual_seed(0)
torch.cuda.manual_seed_all(3)
rnn = nn.LSTM(4, 6, batch_first=True).cuda()
attention = nn.MultiheadAttention(6, 2, batch_first=True).cuda()
x = torch.randn(2, 5, 4, device="cuda")
start = torch.cuda.Event(enable_timing=True)
with torch.cuda.amp.autocast(dtype=torch.bfloat16):
    y, _ = rnn(x)
    y, _ = attention(y, y, y)
y = y.float()
torch.cuda.synchronize()
torch.save(y, "y.pt")
y = torch.load("y.pt", map_location="cuda") + torch.cuda.FloatTensor([torch.cuda.device_count()])
if True:
{SHOWN}""",
}


def run(folder: Path, runtime: str) -> tuple[list[float], int]:
    """What a migrated program prints, and how many files of the runtime it has."""
    report = migrate_paths(
        [folder / "gpu"], TARGET, config=Config(runtime=runtime), output=folder / runtime
    )
    assert report.exit_code == 0, report.errors or report.failures
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=folder / runtime, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(v) for v in done.stdout.split()], len(list((folder / runtime).rglob("*.py"))) - 1


@pytest.mark.parametrize("name", thorough_but(["training"], PROGRAMS))
def test_a_program_runs_with_what_is_written_for_it_as_with_all(tmp_path: Path, name: str) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "main.py").write_text(PROGRAMS[name])
    found, files = run(tmp_path, "bundled")
    expected, all_files = run(tmp_path, "copy")
    assert found and found == expected
    assert files < all_files == len(bundle(targets()[TARGET]).files)


# Gradients that a program asks for after all, where nobody has brought its copy up to date.
BY_HAND = """
    images = data.to(device).requires_grad_()
    (model(images) ** 2).sum().backward()
    for p in (images, *model.parameters()):
        print(p.grad.double().norm().item(), p.grad.cpu().double().sum().item())
"""


def test_what_is_left_out_changes_no_numbers(tmp_path: Path) -> None:
    """It is slow, or raises: a program that trains by hand, in a copy for one that does not."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "main.py").write_text(PROGRAMS["inference"])
    run(tmp_path, "bundled")
    printed = []
    for where, begin in (("cpu", ""), (WORD, "import tpu_runtime\ntpu_runtime.setup()\n")):
        code = f"{MODEL}{begin}\nfor device in ['{where}']:\n    model.to(device)\n{BY_HAND}"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path / "bundled", capture_output=True, text=True,
            timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed.append([float(v) for v in done.stdout.split()])
    assert printed[1] == pytest.approx(printed[0], rel=1e-4, abs=1e-4)


def test_a_module_of_a_folder_that_is_no_package_starts(tmp_path: Path) -> None:
    """`python -m team.train` has the folder above on `sys.path`, and not its own."""
    (tmp_path / "gpu" / "team").mkdir(parents=True)
    (tmp_path / "gpu" / "team" / "model.py").write_text(
        "import torch\n\n\ndef net():\n    torch.cuda.manual_seed(0)\n"
        "    return torch.nn.Linear(2, 1).cuda()\n"
    )
    (tmp_path / "gpu" / "team" / "train.py").write_text(
        "import torch\nfrom .model import net\n\n"
        "if __name__ == '__main__':\n    print(net()(torch.zeros(1, 2).cuda()).shape)\n"
    )
    migrate_paths([tmp_path / "gpu"], TARGET, output=tmp_path / "tpu")
    done = subprocess.run(
        [sys.executable, "-m", "team.train"], cwd=tmp_path / "tpu", capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([1, 1])\n"
