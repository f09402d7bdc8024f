"""The target in whose environment the tests run; empty where they need none."""

from __future__ import annotations

import os
import sys

import pytest

TARGET = os.environ.get("TPU_MIGRATE_TARGET", "")
WORD = {"torchax": "jax", "torch_xla": "xla", "torch_tpu": "tpu"}.get(
    TARGET, ""
)  # the type of its device
# libtpu is in the environment of one target, and has no wheels for other systems.
needs_libtpu = pytest.mark.skipif(
    TARGET != "torchax" or sys.platform != "linux", reason="needs libtpu"
)
