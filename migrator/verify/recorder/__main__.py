"""Runs a script as `python SCRIPT ARGUMENTS…` would, and records what it computes.

    python RECORDER_FOLDER SPEC.json SCRIPT ARGUMENTS…

Runs inside the script's interpreter (needs torch and NumPy there) and imports nothing of
tpu-migrate. SPEC.json: `output` (folder), `root` (the program's folder), `stand_in` (accelerators
that the CPU takes the place of where there is no GPU, or null), `seed`, `steps`, `dropout`,
`float64` (whether it computes in float64), `own_draws` (if random numbers are not replaced: what is
added to its seeds, and after how many calls that sample; or null), `closely`, `rounding` (the
number of a run that rounds otherwise, or 0), `limit` (bytes of tensors), `memory` (bytes, or null),
`module` (its name, to run it as `python -m` does, or null), `original` (the folder that `root` is a
copy of), `focus` (a step of which every operation is kept, and nothing else; or null), `stop` and
`stop_calls` (after how many steps of an optimizer it ends, and where nothing is trained, after how
many calls of a model; or null), `layers` (whether outputs of modules inside of models are kept,
too),
`devices` (how many, each for a rank, or null), `launched` (torchrun has started this process as a
rank), `replicas` (a program that runs ranks as threads, or null).
Writes `tensors.safetensors` and `events.json`, and the same for each rank into `ranks/NUMBER`; also
where the script fails or is stopped, and then `ended` in it says so. Where it is killed,
`tensors.safetensors.part` and `.notes` are left.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent)
import recorded_ranks  # noqa: E402
from session import Session, Thread  # noqa: E402


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    script, arguments = Path(sys.argv[2]).resolve(), sys.argv[3:]
    output, number = Path(spec["output"]), None
    if spec["launched"] and spec["replicas"] is None:
        number = int(os.environ["RANK"])
        output = recorded_ranks.folder(output, number)
        arguments = [argument.replace("{rank}", str(number)) for argument in arguments]
    session = Session(spec, output, number)
    if number is not None:
        recorded_ranks.take_output(output, number)
    sys.argv = [str(script), *arguments]
    sys.path.insert(1, str(Path.cwd() if spec["module"] else script.parent))
    session.install()
    if spec["replicas"] is not None:
        return session.record(_on_threads(session, script, arguments))
    if spec["module"]:
        return session.record(
            lambda: runpy.run_module(spec["module"], run_name="__main__", alter_sys=True)
        )
    return session.record(lambda: runpy.run_path(str(script), run_name="__main__"))


def _on_threads(session: Session, script: Path, arguments: list[str]) -> Callable[[], None]:
    """A script whose ranks are threads."""
    spec = importlib.util.spec_from_file_location("replicas", session.spec["replicas"])
    assert spec is not None
    assert spec.loader is not None
    replicas: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(replicas)
    replicas.run_rank = lambda rank, program: Thread(session, rank).record(program)
    each = ["--each"] if session.spec["launched"] else []
    return lambda: replicas.main([*each, str(script), *arguments], session.spec["module"] or "")


if __name__ == "__main__":
    code = main()
    if "RANK" in os.environ:  # torchrun has started it
        recorded_ranks.leave(code)
    sys.stdout.flush()
    sys.exit(code)
