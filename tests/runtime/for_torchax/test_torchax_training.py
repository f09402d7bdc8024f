"""Training on torchax, beside what test_training.py holds for both targets."""

import os

import pytest
import torch
import tpu_runtime as tpu
from torch import nn

from tests.runtime.support import ROOT, RUNTIME, run

tpu.setup()


def test_cuda_options_are_dropped() -> None:
    weight = nn.Parameter(torch.ones(3).to("jax"))
    optimizer = torch.optim.AdamW([weight], fused=True)
    (weight**2).sum().backward()
    with pytest.warns(UserWarning, match="fused=True is for CUDA"):
        optimizer.step()
    assert weight.detach().cpu().max() < 1


@pytest.mark.thorough
def test_float64() -> None:
    """Where float32 stops at 1e-4 for rounding, float64 goes on to 1e-9: nothing else differs."""
    code = (
        "from tests.runtime.test_training import MODELS, OPTIMIZERS, differences, torch\n"
        "for name in ('convnet', 'gpt'):\n"
        "    found = differences(MODELS[name], OPTIMIZERS['adam'], torch.float64)\n"
        "    print(len(found), max(found.values()))"
    )
    paths = os.pathsep.join([str(RUNTIME), str(ROOT), str(ROOT / "tests")])
    done = run(code, PYTHONPATH=paths, JAX_ENABLE_X64="1")
    assert done.stdout, done.stderr
    counts, found = zip(
        *(map(float, line.split()) for line in done.stdout.splitlines()), strict=True
    )
    assert min(counts) > 9 and len(found) == 2 and max(found) < 1e-9, (found, done.stderr[-2000:])
