"""The target in whose environment the tests run; empty where they need none."""

from __future__ import annotations

import os

TARGET = os.environ.get("TPU_MIGRATE_TARGET", "")
WORD = {"torchax": "jax", "torch_xla": "xla", "torch_tpu": "tpu"}.get(
    TARGET, ""
)  # the type of its device
