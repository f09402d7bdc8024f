"""Random training loops: the original on CPU torch beside the migrated one on torchax.

    python benchmarks/random_loops [--count 100] [--seed 0] [-j 2]
    python benchmarks/random_loops --seed 17 --count 1 --show     # one of them, with its text
    python benchmarks/random_loops --seed 17 --count 1 --shrink   # without what it fails without
    python benchmarks/random_loops --identity                     # the original beside itself
    python benchmarks/random_loops --plant moved                  # with a fault, to be found

Run it in the environment of torchax. One seed is one program, whose loop has 10 to 20 statements
(program.py). Compared are what is printed, in its order, and after each round every parameter,
buffer, gradient, state of an optimizer and all else that the program's names reach, and the states
of the CPU's generators; then the same program is run again and only read at its end. All is
float64, and equal to 1e-9. A program with random numbers of the device is compared with itself,
run operator by operator. A loop only counts if its later steps ran as held programs. The exit code
is 1 if one of the loops differs or raises.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from random_loops.harness import Harness, Outcome  # noqa: E402
from random_loops.planting import FAULTS  # noqa: E402
from random_loops.program import Program, program  # noqa: E402
from random_loops.shrinking import shrunk  # noqa: E402

FAILURES = ("differs", "raises")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes with torchax")
    parser.add_argument("--show", action="store_true", help="print the programs")
    parser.add_argument("--shrink", action="store_true", help="print small programs that fail")
    parser.add_argument("--identity", action="store_true", help="compare originals with themselves")
    parser.add_argument("--plant", choices=FAULTS, default="", help="a fault that is to be found")
    return parser.parse_args()


def _summary(found: list[Outcome], seconds: float) -> str:
    verdicts = Counter(outcome.verdict for outcome in found)
    compared = [outcome for outcome in found if outcome.verdict in ("same", *FAILURES)]
    held = [outcome for outcome in compared if outcome.held]
    same = sum(outcome.verdict == "same" for outcome in held)
    late = [outcome for outcome in compared if outcome.compiled]
    passes, programs = (sum(getattr(o, name) for o in held) for name in ("passes", "programs"))
    others = [
        f"{count} {name}" for name, count in verdicts.items() if name not in ("same", *FAILURES)
    ]
    unheld = sorted(outcome.seed for outcome in compared if not outcome.held)
    return "\n".join([
        f"{len(found)} loops in {seconds:.0f} s: {len(compared)} compared"
        + "".join(f", {other}" for other in others),
        f"  {len(held)} ran held, {same} of them the same; {len(unheld)} weren't held",
        f"  not held: {', '.join(map(str, unheld[:20]))}{', …' * (len(unheld) > 20)}",
        f"  {verdicts['differs']} differ, {verdicts['raises']} raise",
        f"  {programs} held programs for {passes} backward passes after the first rounds",
        f"  {sum(o.compiled for o in late)} programs compiled after the first rounds, "
        f"in {len(late)} loops",
    ])  # fmt: skip


def _fails_alike(harness: Harness, outcome: Outcome, made: Program, text: str) -> bool:
    found = harness.outcome(outcome.seed, replace(made, text=text))
    return found.verdict == outcome.verdict and (
        outcome.verdict == "differs"
        or found.what.partition(" (line")[0] == outcome.what.partition(" (line")[0]
    )


def main() -> int:
    asked, start = _asked(), time.perf_counter()
    found: list[Outcome] = []
    with Harness(asked.jobs, asked.plant, asked.identity) as harness:
        for outcome in harness.outcomes(range(asked.seed, asked.seed + asked.count)):
            found.append(outcome)
            made = program(outcome.seed)
            if asked.show:
                print(made.text)
            if outcome.verdict in FAILURES:
                print(
                    f"--seed {outcome.seed} --count 1: {outcome.verdict}: {outcome.what}",
                    flush=True,
                )
        for outcome in found if asked.shrink else ():
            if outcome.verdict in FAILURES:
                made = program(outcome.seed)
                small = shrunk(made.text, partial(_fails_alike, harness, outcome, made))
                print(
                    f"# seed {outcome.seed} {outcome.verdict}: {outcome.what}\n{small}\n",
                    flush=True,
                )
    print(_summary(found, time.perf_counter() - start))
    return int(any(outcome.verdict in FAILURES for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
