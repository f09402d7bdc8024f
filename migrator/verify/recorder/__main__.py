"""Runs a script as `python SCRIPT ARGUMENTS…` would, and records what it computes.

    python RECORDER_FOLDER SPEC.json SCRIPT ARGUMENTS…

Runs inside the script's interpreter (needs torch and NumPy there) and imports nothing of
tpu-migrate. SPEC.json: `output` (folder), `root` (the program's folder), `stand_in` (accelerators
that the CPU takes the place of, or null), `seed`, `steps`, `dropout`, `closely`, `rounding`,
`limit` (bytes), `focus` (a step of which every operation is kept, and nothing else; or null).
Writes `tensors.safetensors` and `events.json`; also where the script fails or is stopped, and then
`ended` in it says so.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent)
import files  # noqa: E402
import randomness  # noqa: E402
from operations import Finished, Trace  # noqa: E402
from store import Store  # noqa: E402
from watch import Watch  # noqa: E402


class Stopped(BaseException):
    """SIGTERM: the time is over."""


def _stop(_number: int, _frame: object) -> None:
    raise Stopped


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    script, arguments = Path(sys.argv[2]).resolve(), sys.argv[3:]
    output, root = Path(spec["output"]), Path(spec["root"]).resolve()
    owner = os.getpid()
    if spec["stand_in"] is not None:
        import cpu_stand_in

        cpu_stand_in.install(*spec["stand_in"])
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.parent)
    runtime = _runtime()
    random = randomness.install(spec["seed"], spec["dropout"])
    store = Store(output / "tensors.safetensors", spec["limit"])
    watch = Watch(store, spec["steps"], root)
    watch.install(spec["closely"], spec["rounding"])
    focus = None if spec["focus"] is None else Trace(watch, spec["focus"])
    if focus is not None:
        focus.install(sys.modules.get("tpu_runtime"))
    before = files.there(root)
    signal.signal(signal.SIGTERM, _stop)
    began, ended, code = time.time(), "", 0
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1 if error.code else 0
        if error.code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        ended = f"exit code {code}" if code else ""
    except Finished:
        pass
    except Stopped:
        ended, code = "stopped", 124
    except EOFError as error:
        ended, code = "it asks for input", 1
        print(f"EOFError: {error}", file=sys.stderr)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        ended, code = (
            f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})",
            1,
        )
    if os.getpid() != owner:  # a child of the script's, which got here by fork
        return code
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
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
    _write(output, store, watch, random, ended, seconds, found, runtime)
    return code


def _runtime() -> str | None:
    """The runtime of migrated code is imported first: it has to see torch's own functions."""
    try:
        import tpu_runtime
    except ImportError:
        return None
    return str(getattr(tpu_runtime, "__file__", ""))


def _write(
    output: Path,
    store: Store,
    watch: Watch,
    random: randomness.Randomness,
    ended: str,
    seconds: float,
    found: list[dict[str, Any]],
    runtime: str | None,
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
        "machine": files.machine(),
        "tensors_sha256": digest,
    }
    partial = output / "events.json.part"
    partial.write_text(json.dumps(table), "utf-8")
    partial.replace(output / "events.json")


if __name__ == "__main__":
    sys.exit(main())
