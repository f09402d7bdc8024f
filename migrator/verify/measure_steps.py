"""Runs a GPU program and measures its training steps, unwatched: how long each takes, and memory.

Runs inside the program's own interpreter, so it is self-contained. Arguments: the file to write,
how many steps to measure, then the script with its arguments, or `-m` and a module with its own.
Values are not looked at, other than by the program; the device is waited for after each step of an
optimizer. The program ends after the steps that are measured.
"""

import json
import os
import runpy
import statistics
import sys
import time
from pathlib import Path
from typing import Any

WARM = 3  # steps that compile, and allocate memory


class Steps:
    """Times at which steps end: those of the first optimizer that makes one."""

    def __init__(self, output: Path, count: int) -> None:
        self.output, self.count = output, count
        self.ends: list[float] = []
        self.of: Any = None

    def ended(self, optimizer: Any, *_: Any) -> None:
        """A step of an optimizer has ended."""
        import torch

        self.of = self.of or optimizer
        if optimizer is not self.of:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        if len(self.ends) > WARM + self.count:
            self.write()
            os._exit(0)  # a program may go on after SystemExit

    def write(self) -> None:
        """Write the median of what was measured, if anything was."""
        import torch

        times = [b - a for a, b in zip(self.ends[WARM:], self.ends[WARM + 1 :])]  # noqa: B905
        if not times:
            return
        on_gpu = torch.cuda.is_available()
        figures = {
            "device": torch.cuda.get_device_name() if on_gpu else "CPU",
            "seconds": statistics.median(times),
            "steps": len(times),
            "memory": torch.cuda.max_memory_allocated() if on_gpu else None,
        }
        self.output.write_text(json.dumps(figures), encoding="utf-8")


def main() -> None:
    output, count, *program = sys.argv[1:]
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = Steps(Path(output), int(count))
    register_optimizer_step_post_hook(steps.ended)
    is_module = program[0] == "-m"
    name, sys.argv = program[is_module], program[is_module:]
    sys.path[0] = str(Path.cwd()) if is_module else str(Path(name).parent.absolute())
    try:
        if is_module:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
    finally:
        steps.write()


if __name__ == "__main__":
    main()
