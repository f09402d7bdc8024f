"""The whole of it: mshnet migrated and trained on the real target, compared, and resumed.

The checkpoint goes both ways: the GPU original (a CPU standing in) goes on where the migrated app
stopped, and the other way round; both end where the golden, trained in one go, ends.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from target import TARGET

from migrator.targets import find_target
from migrator.verify import VerifyResult, verification, verify_app
from migrator.verify.apps import find_app
from migrator.verify.script_device import device_for

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
