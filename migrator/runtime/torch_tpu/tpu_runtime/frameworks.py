"""What trains for a program: accelerate 1.15 knows no torch_tpu, and would stay on the CPU."""

import os

from .device import is_loaded

_DEVICE = "ACCELERATE_TORCH_DEVICE"


def install() -> None:
    if is_loaded():
        os.environ.setdefault(_DEVICE, "tpu")
