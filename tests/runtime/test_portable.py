"""A script migrated with --portable runs on the CPU, on a GPU and on the target, and chooses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from target import TARGET, WORD
from tiers import thorough_on

from migrator import migrate_paths
from migrator.config import Config

if TARGET not in ("torchax", "torch_xla"):
    pytest.skip("needs an environment of a target", allow_module_level=True)

STAND_IN = (
    Path(__file__).resolve().parents[2] / "migrator" / "verify" / "recorder" / "cpu_stand_in.py"
)

SCRIPT = """
import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--save", default="")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    data = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    loader = DataLoader(data, batch_size=8, pin_memory=True)
    net = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    net = net.to(device)
    net = torch.compile(net, backend="eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp)
    losses = []
    for epoch in range(args.epochs):
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            optimizer.zero_grad()
            with torch.cuda.amp.autocast(enabled=args.amp):
                loss = nn.functional.mse_loss(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            out = net(x.to(device))
            losses.append(out.sum().item())
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    if args.save:
        torch.save(net.state_dict(), args.save)
        net.load_state_dict(torch.load(args.save, map_location=device))
    print(json.dumps({"losses": losses, "device": device.type, "memory": device.type == "cuda" and
                      torch.cuda.max_memory_allocated(), "tpu": getattr(args, "use_tpu", None)}))


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The GPU original, and the portable program."""
    folder = tmp_path_factory.mktemp("portable")
    (folder / "gpu").mkdir()
    (folder / "gpu" / "train.py").write_text(SCRIPT)
    report = migrate_paths(
        [folder / "gpu"],
        TARGET,
        config=Config(portable=True, runtime="copy"),
        output=folder / "any",
    )
    assert report.exit_code == 0
    return folder / "gpu" / "train.py", folder / "any" / "train.py"


def start(script: Path, *args: str, gpu: bool = False, **env: str) -> Any:
    stand_in = [str(STAND_IN)] if gpu else []
    return subprocess.run(
        [sys.executable, *stand_in, script.name, *args],
        cwd=script.parent, capture_output=True, text=True, timeout=300,
        env={**os.environ, **env},
    )  # fmt: skip


def numbers(script: Path, *args: str, gpu: bool = False, **env: str) -> dict[str, Any]:
    done = start(script, *args, gpu=gpu, **env)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def original(scripts: tuple[Path, Path]) -> list[float]:
    losses = numbers(scripts[0], gpu=True)["losses"]
    assert len(losses) == 12
    return list(losses)


def test_on_the_cpu_it_is_the_original(scripts: tuple[Path, Path], original: list[float]) -> None:
    result = numbers(scripts[1])
    assert (result["device"], result["tpu"]) == ("cpu", False)
    assert result["losses"] == original


def test_on_a_gpu_it_is_the_original(scripts: tuple[Path, Path], original: list[float]) -> None:
    result = numbers(scripts[1], "--no-use-tpu", gpu=True)
    assert result["losses"] == original
    assert numbers(scripts[1], "--amp", gpu=True) == numbers(scripts[1], "--amp", gpu=True)


@thorough_on("torchax")
def test_on_the_target(scripts: tuple[Path, Path], original: list[float], tmp_path: Path) -> None:
    saved = tmp_path / "net.pth"
    result = numbers(scripts[1], "--use-tpu", "--save", str(saved))
    assert (result["device"], result["tpu"], result["memory"]) == (WORD, True, False)
    assert result["losses"] == pytest.approx(original, rel=2e-5, abs=2e-6)
    named = numbers(scripts[1], "--amp", TPU_RUNTIME_DEVICE="tpu")
    assert named["device"] == WORD
    assert named["losses"] == pytest.approx(original, rel=0.1, abs=0.05)
    assert named["losses"] != result["losses"]  # bfloat16


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (["--use-tpu"], {"JAX_PLATFORMS": "tpu", "PJRT_DEVICE": "TPU"}, "no TPU in this machine"),
        ([], {"TPU_RUNTIME_DEVICE": "npu"}, "TPU_RUNTIME_DEVICE=npu is not one of tpu, cuda, cpu"),
        ([], {"TPU_RUNTIME_DEVICE": "cuda"}, "no GPU that torch can use"),
    ],
)
def test_what_is_not_there_is_one_line(
    scripts: tuple[Path, Path], args: list[str], env: dict[str, str], words: str
) -> None:
    done = start(scripts[1], *args, **env)
    assert done.returncode == 1
    assert done.stderr.startswith("tpu_runtime: ") and words in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_tpu_is_not_imported_elsewhere(
    scripts: tuple[Path, Path], cold_interpreter: str
) -> None:
    code = (
        "import sys, tpu_runtime; tpu_runtime.setup(); tpu_runtime.synchronize();"
        "assert not {'jax', 'torchax', 'torch_xla', 'tpu_runtime.tpu'} & set(sys.modules)"
    )
    done = subprocess.run(
        [cold_interpreter, "-c", code], cwd=scripts[1].parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
