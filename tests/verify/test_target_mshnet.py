"""The whole of it: mshnet migrated and trained on the real target, compared, and resumed.

The checkpoint goes both ways: the GPU original (a CPU standing in) goes on where the migrated app
stopped, and the other way round; both end where the golden, trained in one go, ends.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from target import TARGET, WORD

from migrator.targets import find_target
from migrator.verify import VerifyResult, verification, verify_app
from migrator.verify.apps import find_app
from migrator.verify.device import device_for

pytestmark = pytest.mark.thorough(f"mshnet on {TARGET}")  # minutes
ROOT = Path(__file__).resolve().parents[2]
APP, GOLDEN = ROOT / "reference_apps" / "mshnet", ROOT / "golden" / "mshnet"
ARGS = tomllib.loads((APP / "app.toml").read_text(encoding="utf-8"))["args"]
STAND_IN = [str(ROOT / "migrator" / "verify" / "recorder" / "cpu_stand_in.py")]
HALF = "2"  # epochs, of four: the warm-up


@pytest.fixture(scope="module", autouse=True)
def within_minutes() -> Iterator[None]:
    """The TPU compiler gets less time, it needs minutes for one of torchax's programs; torch gets
    one thread, since on tensors this small a second one that has to wait costs more than it does.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(verification, "_COMPILE_SECONDS", 10.0)
        yield


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> VerifyResult:
    """A verification; what it made is kept."""
    folder = tmp_path_factory.mktemp("verify")
    return verify_app("mshnet", TARGET, python=Path(sys.executable), keep=folder)


def run(command: list[str], folder: Path, env: Mapping[str, str]) -> str:
    """Run a script by this Python in `folder`; returns what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_target(result: VerifyResult, command: list[str]) -> str:
    """Run a script in the migrated copy, with the programs that were compiled already."""
    assert result.kept is not None
    env = {
        **device_for(find_target(TARGET)).environment,
        "JAX_COMPILATION_CACHE_DIR": str(result.kept / "jax_cache"),
    }
    return run(command, result.kept / "migrated", env)


def test_every_number_agrees_with_the_golden(result: VerifyResult) -> None:
    assert result.error is None and result.log_tail is None
    assert [(each.name, each.reason) for each in result.outputs if not each.passed] == []
    assert result.compared == len(load_file(GOLDEN / "outputs.safetensors"))
    assert all(step.first is not None for step in result.times)


def test_every_float32_dot_and_convolution_is_at_highest(result: VerifyResult) -> None:
    report = result.precision
    assert report is not None and report.count_convs > 0
    assert report.offenders == []


@pytest.mark.parametrize("first", ["the target", "the original"])
def test_a_checkpoint_is_resumed_by_the_other_side(
    first: str, result: VerifyResult, tmp_path: Path
) -> None:
    assert result.kept is not None
    record = tmp_path / "ended" / "record.safetensors"
    resumed = ["main.py", *ARGS, "--save-dir", str(record.parent), "--record", str(record)]
    resumed += ["--if-checkpoint", "--weight-path"]
    if first == "the target":
        warm = next((result.kept / "migrated").rglob("warm.pth"))
        run([*STAND_IN, *resumed, str(warm)], APP, {})
    else:
        half = ["main.py", *ARGS, "--epochs", HALF, "--save-dir", str(tmp_path)]
        run([*STAND_IN, *half], APP, {})
        on_target(result, [*resumed, str(tmp_path / "warm.pth")])

    # State and scores are those of the last epoch; of the series it has the second half.
    golden = load_file(GOLDEN / "outputs.safetensors")
    tolerances = find_app("mshnet", TARGET).tolerances
    ended = load_file(record)
    for name, want in golden.items():
        got = ended[name]
        if got.shape != want.shape:
            assert len(got) == len(want) // 2
            want = want[len(want) // 2 :]
        tolerance = tolerances[name]
        want = want.astype(np.float64)
        allowed = tolerance.atol + tolerance.rtol * np.abs(want)
        assert np.all(np.abs(got.astype(np.float64) - want) <= allowed), name


NOISE = """
import copy, json, sys
import tpu_runtime
tpu_runtime.setup()
import torch
from loss import SLSIoULoss
from model import MSHNet, ResidualBlock
from torch import nn

device = sys.argv[1]
lr, steps = 0.001, 2
torch.manual_seed(0)
net = MSHNet(width=2, blocks=1)
blocks = {name: m for name, m in net.named_modules() if isinstance(m, ResidualBlock)}
biases, means = set(), set()
for name, block in blocks.items():
    pairs = {"conv1": "bn1", "conv2": "bn2"}
    if isinstance(block.shortcut, nn.Sequential):
        pairs["shortcut.0"] = "shortcut.1"
    for conv, norm in pairs.items():
        convolution = block.get_submodule(conv)
        convolution.bias = nn.Parameter(torch.zeros(convolution.out_channels))
        biases.add(f"{name}.{conv}.bias")
        means.add(f"{name}.{norm}.running_mean")
batches = [
    (torch.randn(2, 3, 32, 32), (torch.rand(2, 1, 32, 32) > 0.97).float()) for _ in range(steps)
]


def train(net, device, dtype):
    net = copy.deepcopy(net).to(dtype).to(device)
    criterion = SLSIoULoss(warm_epoch=1)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=lr)
    losses, gradients = [], []
    for image, label in batches:
        _, output = net(image.to(dtype).to(device), False)
        loss = criterion(output, label.to(dtype).to(device), 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tpu_runtime.synchronize()
        losses.append(loss.item())
        gradients += [
            p.grad.abs().max().item() for name, p in net.named_parameters() if name in biases
        ]
    return losses, gradients, {name: value.cpu() for name, value in net.state_dict().items()}


losses, noise, state = train(net, device, torch.float32)
cpu_losses, _, cpu_state = train(net, "cpu", torch.float32)
_, truth, _ = train(net, "cpu", torch.float64)
differences = {
    name: (value.double() - cpu_state[name].double()).abs().max().item()
    for name, value in state.items()
}
print(json.dumps({
    "losses": max(abs(a - b) for a, b in zip(losses, cpu_losses)),
    "biases": {name: differences.pop(name) for name in biases},
    "means": {name: differences.pop(name) for name in means},
    "others": differences,
    "gradients": [max(truth), max(noise)],
}))
"""


def test_a_bias_in_front_of_batch_norm_follows_rounding_alone(result: VerifyResult) -> None:
    """Why a net with such biases seems to part from the GPU's under Adagrad: it does not.

    BatchNorm takes the bias away again, so its true gradient is 0 (1e-17 in float64). In float32 it
    is noise (5e-9), which Adagrad divides by its own size: the bias makes whole steps (0.001) in a
    direction of its own on each device. After two steps on either target the biases are up to
    2.8e-3 apart and all other parameters 2e-6, and the losses agree to one rounding;
    `running_mean` contains the bias. MSHNet itself has none, so its parameters compare.
    """
    assert result.kept is not None
    script = result.kept / "migrated" / "bias_noise.py"
    script.write_text(NOISE, encoding="utf-8")
    found = json.loads(on_target(result, [script.name, WORD]).splitlines()[-1])
    truth, noise = found["gradients"]
    assert truth < 1e-15 and 1e-12 < noise < 1e-7
    assert found["losses"] < 3e-7
    assert max(found["others"].values()) < 1e-5
    assert max(found["means"].values()) > 1e-5
    assert all(difference > 1e-5 for difference in found["biases"].values())
