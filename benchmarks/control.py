"""Tolerances held against the original itself: how often would a right migration fail?

    python benchmarks/control.py --python PYTHON [--roundings 4] SCRIPT.py [-- ARGUMENTS...]

Run it in the folder of a GPU script, as `tpu-migrate verify`. The original runs once as it is, and
rounded otherwise several times. Each of those is held against what the others allow: there is no
migration in between, so all should pass. Printed: for each, the largest difference of each kind of
value by what is allowed. PYTHON has torch and NumPy.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from migrator.verify.comparisons import Comparison
from migrator.verify.divergence import compare
from migrator.verify.recordings import Recording, RecordSettings, record_run
from migrator.verify.script import Script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--roundings", type=int, default=4)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    script = Script.find(given.script, given.arguments)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        runs = [record(script, given.python, work, n) for n in range(given.roundings + 1)]
        golden, *rounded = runs
        for number, run in enumerate(rounded):
            others = [other for other in rounded if other is not run]
            print(row(number + 1, compare(golden, others, run, given.python, work)), flush=True)


def record(script: Script, python: Path, work: Path, rounding: int) -> Recording:
    """The original; rounded otherwise where ``rounding`` is not 0."""
    copy, output = script.copy(work / f"copy-{rounding}"), work / f"recording-{rounding}"
    done, recording = record_run(
        python.absolute(), script.entry, script.args, copy, output, RecordSettings(), stand_in=True,
        original=script.folder, rounding=rounding,
    )  # fmt: skip
    if recording.ended:
        raise SystemExit(f"{script.entry}: {recording.ended}\n{done.tail(12)}")
    return recording


def row(number: int, found: Comparison) -> str:
    """The verdict, and the largest difference of each kind by what is allowed."""
    worst: dict[str, float] = {}
    for finding in found.findings:
        worst[finding.kind] = max(worst.get(finding.kind, 0.0), finding.ratio)
    text = ", ".join(f"{kind} × {ratio:.2g}" for kind, ratio in worst.items() if ratio)
    verdict = "passed" if found.passed else "FAILED"
    left_out = f", {len(found.lost)} late tensors left out" if found.lost else ""
    return f"rounding {number}: {verdict}, growth {found.growth:.2g}{left_out}: {text}"


if __name__ == "__main__":
    main()
