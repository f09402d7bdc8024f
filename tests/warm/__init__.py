"""Interpreters that have imported what takes long already, for tests that start many of them."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What the children import anyway, by target or room. JAX reads its variables when it is imported:
# only its libraries are.
MODULES = {
    "torchax": [
        "torch", "torch._dynamo", "torchvision", "jaxlib._jax", "jaxlib.mlir.dialects.mhlo",
        "jaxlib.mlir.dialects.stablehlo", "ml_dtypes", "opt_einsum", "scipy",
    ],
    "editor": ["libcst", "pygls.lsp.server", "lsprotocol.types", "cattrs"],
    "torch_xla": ["torch", "torch._dynamo", "torchvision", "torch_xla", "torch_xla.core.xla_model"],
}  # fmt: skip


@cache
def interpreter(name: str) -> str:
    """A program that takes what `sys.executable` takes, and has imported the modules of ``name``.

    `sys.executable` itself where there are none, or where files can not be handed over to another
    process (no Linux).
    """
    modules = MODULES.get(name)
    if modules is None or not Path("/proc/self/fd").exists():
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="tpu-migrate-warm-"))
    itself, path = folder / "python", folder / "socket"
    command = [sys.executable, "-IS", HERE / "client.py", itself, path, sys.executable]
    itself.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n', encoding="utf-8")
    itself.chmod(0o755)
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [sys.executable, HERE / "server.py", path, *modules], cwd=folder, env=environment
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return str(itself)
