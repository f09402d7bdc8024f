"""Apps migrated to a target whose programs also run on GPUs, on this machine's GPU."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import capture

TARGET = "torch_tpu"


def on_this_gpu(name: str) -> dict[str, Any]:
    """Migrate an app, run it without the target's library, compare it with its golden.

    Returns what `tpu-migrate verify --json` says of an app. On a CPU its outputs are compared all
    the same, so that the way can be tried out.
    """
    from migrator.config import Config
    from migrator.verify.apps import find_app, load_golden
    from migrator.verify.migrated_copy import write_migrated_copy
    from migrator.verify.result import VerifyResult
    from migrator.verify.run import run
    from migrator.verify.verification import compared

    app = find_app(name, TARGET)
    golden = load_golden(app)
    assert app.outputs is not None
    gpu, versions = capture.gpu_name(), capture.versions()
    result = VerifyResult(
        app=name, target=TARGET, device=gpu or "CPU", golden_device=golden.device,
        versions={package: version for package, version in versions.items() if version},
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="portable-") as temporary:
        folder = Path(temporary)
        copy, python = folder / "migrated", Path(sys.executable)
        config = Config(unsafe=app.unsafe)  # whole: it divides no models
        errors = write_migrated_copy(app.folder, TARGET, copy, config, None, False, None)
        if errors:
            return {**result.to_dict(), "error": "; ".join(errors)}
        done = run(
            [str(python), app.entry, *app.args],
            cwd=copy, log=folder / "run.log", timeout=app.timeout,
        )  # fmt: skip
        if failure := done.failure():
            result.problems.append(f"the migrated script {failure}")
        else:
            result.outputs.extend(compared(app, golden, copy / app.outputs, python, folder))
    return {**result.to_dict(), "seconds": done.seconds}
