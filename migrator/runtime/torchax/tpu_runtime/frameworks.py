"""Accelerate, and what is built on it (Trainer, TRL): the device that it takes."""

import os
from typing import Any

from .device import DEVICE_TYPE

NEEDED_BY = "accelerate transformers trl"


def install(_env: Any) -> None:
    """Name the device, of which accelerate knows nothing. What the user has named stays."""
    os.environ.setdefault("ACCELERATE_TORCH_DEVICE", DEVICE_TYPE)
