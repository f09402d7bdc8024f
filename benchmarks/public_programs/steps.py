"""How long the steps of a program's optimizers take: `python steps.py COUNT OUT SCRIPT ARGUMENTS…`

The program ends after COUNT steps, or by itself. OUT gets the CPU seconds between their ends.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import runpy
import sys
import time
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

count, out, script = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
ends = [time.process_time()]


def write() -> None:
    out.write_text(json.dumps([b - a for a, b in itertools.pairwise(ends)]))


def note(*_: object) -> None:
    ends.append(time.process_time())
    if len(ends) > count:
        write()
        sys.stdout.flush()
        os._exit(0)


atexit.register(write)
register_optimizer_step_post_hook(note)
sys.argv[:] = sys.argv[3:]
sys.path[0] = str(Path(script).parent)
runpy.run_path(script, run_name="__main__")
