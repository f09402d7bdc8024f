"""What tests of both runtimes share: the device of the target, and programs of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import tpu_runtime as tpu
from target import TARGET, WORD

ROOT = Path(__file__).parents[2]
RUNTIME = Path(tpu.__file__).parents[1]
BACK_END = {
    "torchax": {"JAX_PLATFORMS": "cpu"},
    "torch_xla": {"PJRT_DEVICE": "CPU"},
    "torch_tpu": {},
}[TARGET]
DEVICE = torch.device(WORD)


def small() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def on_device() -> torch.Tensor:
    return small().to(DEVICE)


def agrees(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, tolerance: float
) -> None:
    """The function computes on the device what it does on the CPU."""
    expected, result = function(x), function(x.to(DEVICE))
    assert result.device.type == WORD and result.shape == expected.shape
    apart = (expected.double() - result.cpu().double()).abs().max().item()
    assert apart <= tolerance, apart


def batch(number: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(number))


def agree(found: Any, expected: Any, tolerance: float = 3e-6) -> None:
    """Numbers are equal, relative to the largest."""
    found, expected = (torch.as_tensor(v).detach().cpu().double() for v in (found, expected))
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * (1e-3 + expected.abs().max())


def difference(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the largest value, or the norm, whichever is more."""
    result, expected = result.detach().cpu().double(), expected.detach().cpu().double()
    assert result.shape == expected.shape
    apart = result - expected
    largest = apart.abs().max() / expected.abs().max().clamp_min(1e-3)
    return max(float(largest), float(apart.norm() / expected.norm().clamp_min(1e-12)))


def run(
    code: str, python: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A process of its own; with a compilation cache only where one is named."""
    inherited = {name: v for name, v in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return subprocess.run(
        [python or sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": str(RUNTIME), **BACK_END, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
