"""The tests of a runtime package run inside its own environment, and only there.

TPU_MIGRATE_TARGET=torchax JAX_PLATFORMS=cpu PYTHON -m pytest tests/runtime
TPU_MIGRATE_TARGET=torch_xla PJRT_DEVICE=CPU PYTHON -m pytest tests/runtime
"""

import os
import sys
from pathlib import Path

TARGETS = ("torchax", "torch_xla")
target = os.environ.get("TPU_MIGRATE_TARGET")
collect_ignore_glob = [f"test_{name}*.py" for name in TARGETS if name != target]
if target in TARGETS:
    runtime = Path(__file__).resolve().parents[2] / "migrator" / "runtime" / target
    sys.path.insert(0, str(runtime))
