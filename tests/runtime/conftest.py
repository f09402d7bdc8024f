"""The tests of a runtime package run inside its own environment, and only there.

TPU_MIGRATE_TARGET=torchax JAX_PLATFORMS=cpu PYTHON -m pytest tests/runtime
TPU_MIGRATE_TARGET=torch_xla PJRT_DEVICE=CPU PYTHON -m pytest tests/runtime

The folder `for_TARGET` is a target's own (libraries look for `TARGET` by that name); what stands
beside it holds for all.
"""

import gc
import sys
from pathlib import Path

from target import TARGET

from migrator.targets.copies import folder_to_import

HERE = Path(__file__).resolve().parent
if not TARGET:
    collect_ignore_glob = ["*.py", "*/*.py"]
else:
    folders = (folder.name for folder in HERE.iterdir() if folder.is_dir())
    collect_ignore_glob = [f"{name}/*" for name in folders if name != f"for_{TARGET}"]
    sys.path[:0] = [str(folder_to_import(TARGET)), str(HERE)]
if TARGET == "torchax":
    import jax  # noqa: F401
    import torchvision  # noqa: F401

    # A compiled step looks for tensors that were kept in a trace, in all objects but these.
    gc.collect()
    gc.freeze()
