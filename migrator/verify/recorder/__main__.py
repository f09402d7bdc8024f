"""Runs a script as `python SCRIPT ARGUMENTS…` would, and records what it computes.

    python RECORDER_FOLDER SPEC.json SCRIPT ARGUMENTS…

Runs inside the script's interpreter (needs torch and NumPy there) and imports nothing of
tpu-migrate. SPEC.json: `output` (folder), `root` (the program's folder), `stand_in` (accelerators
that the CPU takes the place of, or null), `seed`, `steps`, `dropout`, `closely`, `rounding` (the
number of a run that rounds otherwise, or 0), `limit` (bytes of tensors), `memory` (bytes, or null),
`module` (its name, to run it as `python -m` does, or null), `original` (the folder that `root` is a
copy of), `focus` (a step of which every operation is kept, and nothing else; or null), `stop` and
`stop_calls` (after how many steps of an optimizer it ends, and where nothing is trained, after how
many calls of a model; or null).
Writes `tensors.safetensors` and `events.json`; also where the script fails or is stopped, and then
`ended` in it says so. Where it is killed, `tensors.safetensors.part` and `.notes` are left.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent)
import compiled  # noqa: E402
import files  # noqa: E402
import process  # noqa: E402
import randomness  # noqa: E402
import rounding  # noqa: E402
from operations import Trace  # noqa: E402
from store import Store  # noqa: E402
from watch import Finished, Watch  # noqa: E402


def _is_ours(module: Any) -> bool:
    file = getattr(module, "__file__", None) or ""
    return module.__name__ != "__main__" and Path(file).parent == Path(__file__).resolve().parent


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    script, arguments = Path(sys.argv[2]).resolve(), sys.argv[3:]
    output, root = Path(spec["output"]), Path(spec["root"]).resolve()
    owner = os.getpid()
    process.limit_memory(spec["memory"])
    if spec["stand_in"] is not None:
        import cpu_stand_in

        cpu_stand_in.install(*spec["stand_in"])
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(root if spec["module"] else script.parent)
    for name in [n for n, m in sys.modules.items() if _is_ours(m)]:
        del sys.modules[name]  # the script may have a module of that name
    process.redirect(Path(spec["original"]), root)
    runtime = _runtime()
    if runtime is None:
        _leave_uncompiled()
    random = randomness.install(spec["seed"], spec["dropout"])
    store = Store(output / "tensors.safetensors", spec["limit"])
    watch = Watch(store, spec["steps"], root, spec["stop"], spec["stop_calls"])
    if spec["rounding"]:
        rounding.Rounding(spec["rounding"]).install()
    watch.install(spec["closely"], counting=spec["focus"] is None)
    compiled.follow(watch)
    focus = None if spec["focus"] is None else Trace(watch, spec["focus"])
    if focus is not None:
        focus.install(sys.modules.get("tpu_runtime"))
    before = files.there(root)
    children = process.Children(watch.leave)
    outside = process.Outside([root, output])
    store.note({"machine": files.machine(False)})
    began, ended, code = time.time(), "", 0
    try:
        with process.ending():
            if spec["module"]:
                runpy.run_module(spec["module"], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1 if error.code else 0
        if error.code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        ended = f"exit code {code}" if code else ""
    except Finished:
        pass
    except BaseException as error:
        ended, code = process.why(error, root)
    if os.getpid() != owner:  # a child of the script's, which got here by fork
        return code
    seconds = time.time() - began
    found: list[dict[str, Any]] = []
    try:
        with watch.at_rest():
            if focus is not None:
                focus.flush()
            else:
                watch.finish()
                found = files.written(root, before, store, output)
    except Exception as error:
        ended = ended or f"its end can not be read: {type(error).__name__}: {error}"
    said = {
        "processes": children.started,
        "outside": outside.written,
        "devices": sorted(watch.devices),
        "shortened": watch.shortened,
        "in_parts": compiled.in_parts(),
        "not_copied": process.imported_from(Path(spec["original"]), root),
    }
    _write(output, store, watch, random, ended, seconds, found, runtime, said)
    return code


def _runtime() -> str | None:
    """The runtime of migrated code is imported first: it has to see torch's own functions."""
    try:
        import tpu_runtime
    except ImportError:
        return None
    return str(getattr(tpu_runtime, "__file__", ""))


def _leave_uncompiled() -> None:
    """What torch.compile makes can not be watched. It only rounds otherwise than its source."""
    import torch._dynamo

    if hasattr(torch._dynamo.config, "disable"):
        torch._dynamo.config.disable = True


def _write(
    output: Path,
    store: Store,
    watch: Watch,
    random: randomness.Randomness,
    ended: str,
    seconds: float,
    found: list[dict[str, Any]],
    runtime: str | None,
    said: dict[str, Any],
) -> None:
    digest = store.finish()
    table = {
        "ended": ended,
        "seconds": seconds,
        "events": watch.events,
        "files": found,
        "left_out": store.left_out,
        "randomness": {
            "drawn": random.drawn,
            "dropped": randomness.counted(random.dropped),
            "traced": randomness.counted(random.traced),
        },
        "steps": watch.step,
        "migrated": runtime is not None,
        "machine": files.machine(watch.convolves),
        **said,
        "tensors_sha256": digest,
    }
    partial = output / "events.json.part"
    partial.write_text(json.dumps(table), "utf-8")
    partial.replace(output / "events.json")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
