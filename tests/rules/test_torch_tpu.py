"""TorchTPU: programs that choose their device by torch's own words, and still run elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from helpers import REPOSITORY, migrated, outcomes, reported, run

TPU = "torch_tpu"
CHOSEN = 'torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")'


def tpu(source: str, **options: bool) -> str:
    return migrated(textwrap.dedent(source), TPU, **options)


def test_every_example_of_every_rule() -> None:
    """What it becomes parses, names no other target, and stays in a second run."""
    command = [sys.executable, str(REPOSITORY / "tests/engine/every_example.py"), TPU]
    done = subprocess.run(command, cwd=REPOSITORY / "tests", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert not found["faults"], "\n".join(found["faults"])
    assert found["count"]["rewritten"] > 200


def test_a_script_gets_a_device_and_full_precision() -> None:
    text = tpu("import torch\nx = torch.ones(2).cuda()\n", entry=True)
    assert text == (
        "import torch\n\n"
        'torch.set_float32_matmul_precision("highest")\n\n'
        f"device = {CHOSEN}\n\n"
        "x = torch.ones(2).to(device)\n"
    )


def test_its_own_device_is_used() -> None:
    before = """\
    import torch
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


    def f(x):
        return x.cuda(non_blocking=True) + torch.ones(2, device="cuda")
    """
    after = tpu(before)
    assert after.count(CHOSEN) == 1
    assert "x.to(device, non_blocking=True) + torch.ones(2, device=device)" in after


@pytest.mark.parametrize("taken", ["device = 1", "def f(device): pass", "f = lambda device: 1"])
def test_a_name_that_is_taken(taken: str) -> None:
    text = tpu(f"import torch\n{taken}\nx = torch.ones(2).cuda()\n")
    assert f"accelerator = {CHOSEN}" in text and "x = torch.ones(2).to(accelerator)" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.is_cuda", 'x.device.type != "cpu"'),
        ('device.type == "cuda"', 'device.type != "cpu"'),
        ('"cuda" != device.type', '"cpu" == device.type'),
        ('"cuda" in str(device)', '"cpu" not in str(device)'),
        ('device.type in ("cuda", "mps")', 'device.type in ("cuda", "tpu", "mps")'),
        ('str(device).startswith("cuda")', 'str(device).startswith(("cuda", "tpu"))'),
    ],
)
def test_questions_after_the_device(before: str, after: str) -> None:
    head = "import torch\n\n\ndef f(x, device: torch.device):\n    return "
    assert tpu(f"{head}{before}\n") == f"{head}{after}\n"


def test_what_only_a_gpu_does_is_done_on_one() -> None:
    text = tpu("""\
    import torch
    loader = torch.utils.data.DataLoader(data, pin_memory=True)
    scaler = torch.cuda.amp.GradScaler(enabled=use_amp)
    other = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
    """)
    gpu = "torch.cuda.is_available()"
    assert f"DataLoader(data, pin_memory={gpu})" in text
    assert f'scaler = torch.amp.GradScaler("cuda", enabled=use_amp and {gpu})' in text
    assert 'other = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")' in text


def test_what_runs_on_any_accelerator_stays() -> None:
    source = f"import torch\ndevice = {CHOSEN}\ntorch.accelerator.synchronize()\n"
    result = run(source, TPU)
    assert result.source.decode() == source
    assert {outcome for _, outcome, _ in outcomes(result)} == {"kept"}


def test_a_compiled_model_stays_one() -> None:
    assert tpu('import torch\nm = torch.compile(m.cuda(), mode="max-autotune")\n').endswith(
        "m = torch.compile(m.to(device))\n"
    )


def test_what_the_tpu_lacks_is_reported() -> None:
    source = """\
    import torch
    torch.cuda.get_device_capability()
    g = torch.cuda.CUDAGraph()
    """
    assert len(reported(run(textwrap.dedent(source), TPU))) == 2
