"""Programs for several devices, as they are by gloo and as they become, and how far they agree."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

PROGRAMS = Path(__file__).parent / "programs"


def execute(script: Path, *arguments: object, **variables: str) -> str:
    """What a program prints, errors included."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_PORT": str(port), **variables}
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest one of any parameter or loss."""
    assert found["state"].keys() == expected["state"].keys()
    pairs = [(found["state"][name], value) for name, value in expected["state"].items()]
    pairs.append((torch.tensor(found["losses"]), torch.tensor(expected["losses"])))
    assert all(a.shape == b.shape for a, b in pairs)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)
