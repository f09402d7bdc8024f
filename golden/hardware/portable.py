"""Migrated apps on this machine's GPU, in the place of a TPU."""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
from pathlib import Path
from typing import Any

import capture

# torch_tpu's programs are plain PyTorch and run on CUDA without its library; torchax's run on
# JAX's CUDA back end. torch_xla has none any longer.
TARGETS = ("torchax", "torch_tpu")


def on_this_gpu(name: str, target: str) -> dict[str, Any]:
    """Migrate an app, run it on the GPU, compare it with its golden.

    Returns what `tpu-migrate verify --json` says of an app. On a CPU its outputs are compared all
    the same, so that the way can be tried out.
    """
    from migrator.config import Config
    from migrator.verify.apps import find_app, load_golden
    from migrator.verify.migrated_copy import write_migrated_copy
    from migrator.verify.run_script import run
    from migrator.verify.verification import compared
    from migrator.verify.verify_result import VerifyResult

    app = find_app(name, target)
    golden = load_golden(app)
    assert app.outputs is not None
    gpu, versions = capture.gpu_name(), capture.versions()
    if target == "torchax":
        versions |= {each: importlib.metadata.version(each) for each in ("jax", "torchax")}
    result = VerifyResult(
        app=name, target=target, device=gpu or "CPU", golden_device=golden.device,
        versions={package: version for package, version in versions.items() if version},
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="portable-") as temporary:
        folder = Path(temporary)
        copy, python = folder / "migrated", Path(sys.executable)
        config = Config(unsafe=app.unsafe)  # whole: it divides no models
        errors = write_migrated_copy(
            app.folder, target, copy, config, None, diff=False, script=None, kept=False
        )
        if errors:
            return _said(result, error="; ".join(errors))
        done = run(
            [str(python), app.entry, *app.args],
            cwd=copy, log=folder / "run.log", timeout=app.timeout,
            # a JAX without CUDA fails here, and does not take the CPU silently
            env={"JAX_PLATFORMS": "cuda,cpu" if gpu else "cpu"},
        )  # fmt: skip
        if failure := done.failure():
            result.problems.append(f"the migrated script {failure}")
            print(done.tail(), file=sys.stderr)
        else:
            result.outputs.extend(compared(app, golden, copy / app.outputs, python, folder))
    return _said(result, seconds=done.seconds)


def _said(result: Any, **more: Any) -> dict[str, Any]:
    return {**result.to_dict(), "on_gpu": True, **more}
