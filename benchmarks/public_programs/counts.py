"""How many programs the torchax runtime runs for each step: `python counts.py SCRIPT ARGUMENTS…`

Runs a migrated script with the runtime beside it, and prints one line of JSON when it ends (or
writes it, with `--out FILE` before SCRIPT). The second half of the optimizer steps is warm (with
`--passes`, of the backward passes: there may be no optimizer). From one to the next it counts

* `backward`: passes that the program starts: `backward()`, and `torch.autograd.grad` (`grad`),
* `programs`: recorded operations that ran as one program,
* `alone`: those that ran as a program of one operation,
* `parts`: how often several ran one after another,
* `executions` (with `--executions`, which makes the script slower): all that JAX ran.

`allowed` is one for each backward pass and optimizer step; an interval is `within` that if
`programs` and `alone` together are, and nothing ran in parts. `lines`: what ran at which line.
"""

import argparse
import atexit
import functools
import json
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import execution_hooks
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path)
parser.add_argument("--executions", action="store_true")
parser.add_argument("--passes", action="store_true")
parser.add_argument("script")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
options = parser.parse_args()
sys.path[0] = str(Path(options.script).resolve().parent)

import tpu_runtime  # noqa: E402
from tpu_runtime.compilation import program_code  # noqa: E402
from tpu_runtime.lazy import lazy_graph, lazy_programs  # noqa: E402
from tpu_runtime.profiling.reads_in_steps import line_at  # noqa: E402

# The functions here are no part of the program.
program_code.LIBRARIES += (__file__, execution_hooks.__file__)
RUNTIME = str(Path(tpu_runtime.__file__).parent)
setup = tpu_runtime.setup
now, lines = Counter[str](), Counter[str]()
steps: list[tuple[Counter[str], Counter[str]]] = []  # what happened until the end of each
depth = 0  # of backward passes


def note(kind: str, name: str = "") -> None:
    now[kind] += 1
    place = lazy_graph.caller()
    lines[f"{kind}{name}: {line_at(*place) if place else '?'}"] += 1


def end() -> None:
    steps.append((+now, +lines))
    now.clear(), lines.clear()


def passing(kinds: tuple[str, ...], stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def run(*args: Any, **kwargs: Any) -> Any:
        global depth
        is_own = not depth and not sys._getframe(1).f_code.co_filename.startswith(RUNTIME)
        now.update(kinds if is_own else ())
        depth += 1
        try:
            return stock(*args, **kwargs)
        finally:
            depth -= 1
            if options.passes and is_own:
                end()

    return run


def counting(stock: Callable[[Any], None]) -> Callable[[Any], None]:
    def compute(nodes: Any) -> None:
        before = lazy_programs.record.calls
        try:
            stock(nodes)
        finally:
            apart = "parts" if len(nodes) > 1 else "alone"
            note(apart if lazy_programs.record.calls == before else "programs")

    return compute


def install() -> None:
    setup()
    tpu_runtime.setup = setup  # type: ignore[attr-defined]
    torch.autograd.backward = passing(("backward",), torch.autograd.backward)
    torch.autograd.grad = passing(("backward", "grad"), torch.autograd.grad)
    lazy_graph.compute = counting(lazy_graph.compute)
    execution_hooks.after_each_step(end)
    if options.executions:
        execution_hooks.before_each_execution(lambda name: note("executions", f" of {name}"))


def write() -> None:
    warm = [each for each, _ in steps[len(steps) // 2 or 1 :]]
    ran, allowed = [e["programs"] + e["alone"] for e in warm], [e["backward"] + 1 for e in warm]
    fits = [r <= a and not e["parts"] for r, a, e in zip(ran, allowed, warm, strict=True)]
    where = sum((each for _, each in steps[-len(warm) :]), Counter[str]())
    result = {
        "steps": len(steps), "total": sum((each for each, _ in steps), now),
        "warm": len(warm), "mode": Counter(ran).most_common(1)[0][0] if warm else None,
        "max": max(ran, default=None), "allowed": Counter(allowed), "within": sum(fits),
        "with parts": sum(e["parts"] > 0 for e in warm),
        "intervals": Counter(json.dumps(e) for e in warm), "lines": dict(where.most_common(40)),
    }  # fmt: skip
    print(json.dumps(result), file=options.out.open("w") if options.out else sys.stdout)


atexit.register(write)
tpu_runtime.setup = install  # type: ignore[attr-defined]
sys.argv[:] = [options.script, *options.arguments]
runpy.run_path(options.script, run_name="__main__")
