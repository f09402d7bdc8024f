"""cpu_stand_in.py: an unchanged GPU script runs, and only devices are mapped."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
STAND_IN = HERE.parents[1] / "migrator" / "verify" / "recorder" / "cpu_stand_in.py"


def test_gpu_script_runs_and_everything_holds() -> None:
    command = [sys.executable, str(STAND_IN), str(HERE / "gpu_script.py"), "--device", "cuda"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    held = json.loads(run.stdout.splitlines()[-1])
    assert len(held) > 35
    assert [name for name, holds in held.items() if not holds] == []


def test_autocast_has_cudas_lists() -> None:
    """The dtypes that CUDA's kernels for autocast give, as fake tensors of a GPU show."""
    command = [sys.executable, str(STAND_IN), str(HERE / "autocast_script.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    lower = {"linear", "matmul", "mv", "addr", "multi_dot", "mean", "relu", "gelu", "sigmoid",
             "batch_norm", "avg_pool", "einsum"}  # fmt: skip
    assert {name for name, dtype in found.items() if dtype == "torch.float16"} == lower
    assert {dtype for name, dtype in found.items() if name not in lower} == {"torch.float32"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("cuda", True),
        ("cuda:1", True),
        (0, True),
        (torch.device("cuda", 2), True),
        ("cpu", False),
        ("meta", False),
        (torch.device("cpu"), False),
        ("cudax", False),
        ("cuda:", False),
        ("cuda:one", False),
        ("main.CUDACallback", False),
        (True, False),
        (None, False),
        (torch.float16, False),
    ],
)
def test_only_gpus_are_mapped(value: object, expected: bool) -> None:
    spec = importlib.util.spec_from_file_location("cpu_stand_in", STAND_IN)
    assert spec and spec.loader
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)  # defines, and patches nothing
    assert stand_in.is_cuda(value) is expected
    assert stand_in.on_cpu(value) == (torch.device("cpu") if expected else value)
