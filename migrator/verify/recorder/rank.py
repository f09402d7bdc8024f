"""The main module of a process that a recorded program spawns: records the process.

multiprocessing runs it as `__mp_main__` instead of the program's main module, and finds the
function to call in it.
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Any


def _program() -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import recorded_ranks
    from session import Session

    task = recorded_ranks.own_task()
    spec = json.loads(Path(task["spec"]).read_text("utf-8"))
    output = recorded_ranks.folder(Path(spec["output"]), task["number"])
    session = Session(spec, output, task["number"])
    recorded_ranks.take_output(output, task["number"])
    session.install()
    recorded_ranks.record_main_task(session)
    if name := task.get("init_main_from_name"):
        return runpy.run_module(name, run_name="__mp_main__", alter_sys=True)
    if path := task.get("init_main_from_path"):
        return runpy.run_path(path, run_name="__mp_main__")
    return {}


globals().update(_program())
