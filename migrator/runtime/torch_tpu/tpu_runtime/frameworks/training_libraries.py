"""Training libraries: accelerate 1.15 and Lightning 2.6 don't know torch_tpu.

They would stay on the CPU.
"""

import os

from ..device import is_loaded
from . import lightning_accelerator, mixed_targets

_DEVICE = "ACCELERATE_TORCH_DEVICE"


def install() -> None:
    if is_loaded():
        os.environ.setdefault(_DEVICE, "tpu")
        lightning_accelerator.install(lambda: None)
        mixed_targets.install()
