"""How good a judge `tpu-migrate verify` is: faults planted in migrated programs, and clean runs.

    python benchmarks/judge --target torchax --python PYTHON [--seed 1] [--each 5] [--clean 40]
                            [--faults NAME...] [--programs NAME...]

The programs in `programs/` are GPU scripts as people write them. Each is recorded on the CPU in the
place of a GPU, migrated, and verified with a fault in the migrated copy, `--each` of every kind in
`faults.py`, at places that are drawn by `--seed`. Printed: of each kind, how many were caught (a
FAIL), of how many verify named a value first that this kind of fault changes first, and those that
were missed, with the largest difference by what is allowed. A missed fault is listed apart, as one
that changes nothing beyond rounding, where no value differs by more than twice what it does in the
clean run of the same program. Then `--clean` runs without a fault, each program with other seeds:
false alarms. Exit code 1 below 95 % caught, or with a false alarm.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from faults import FAULTS, Planted

from migrator import migrate_paths, migrate_source
from migrator.targets import Target, find_target
from migrator.verify.findings import Finding
from migrator.verify.originals import record_script
from migrator.verify.recordings import Settings
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against
from migrator.verify.verification import Options

PROGRAMS = Path(__file__).resolve().parent / "programs"
LEAST = 0.95  # of the faults that change anything


@dataclass
class Judge:
    """Verifies programs on one target, in folders of its own; goldens are recorded once."""

    target: Target
    python: Path
    work: Path
    goldens: dict[tuple[str, int, bool], Path] = field(default_factory=dict)
    clean: dict[tuple[str, int, bool], float] = field(default_factory=dict)

    def source(self, program: str, seed: int) -> str:
        text = (PROGRAMS / f"{program}.py").read_text("utf-8")
        return text.replace("manual_seed(1)", f"manual_seed({seed})")

    def migrated(self, program: str, seed: int) -> str:
        text = self.source(program, seed)
        return migrate_source(text, target=self.target.name).source.decode()

    def verify(
        self, program: str, seed: int, planted: Planted | None = None, dropout: bool = False
    ) -> ScriptResult:
        settings = Settings(dropout=dropout, seed=seed)
        golden = self._golden(program, seed, settings)
        name = f"{program}.py"

        def migrate(source: Path, target: str, to: Path) -> list[str]:
            report = migrate_paths([source], target=target, output=to)
            if planted is not None:
                (to / name).write_text(planted.source, "utf-8")
            return report.errors

        options = Options(python=self.python, migrate=migrate)
        with contextlib.chdir(golden.parent):
            return verify_against(Path(name), [], self.target, golden, settings, options)

    def farthest(self, program: str, seed: int, dropout: bool) -> float:
        """The largest difference of a clean run, by what is allowed."""
        key = program, seed, dropout
        if key not in self.clean:
            self.clean[key] = ratio(self.verify(*key[:2], dropout=dropout))
        return self.clean[key]

    def _golden(self, program: str, seed: int, settings: Settings) -> Path:
        key = program, seed, settings.dropout
        if key not in self.goldens:
            folder = self.work / f"{program}-{seed}-{settings.dropout:d}"
            folder.mkdir()
            (folder / f"{program}.py").write_text(self.source(program, seed), "utf-8")
            with contextlib.chdir(folder):
                record_script(Path(f"{program}.py"), [], folder / "golden", self.python, settings)
            self.goldens[key] = folder / "golden"
        return self.goldens[key]


def findings(result: ScriptResult) -> list[Finding]:
    return [*result.stepwise.findings, *result.compiled.findings]


def ratio(result: ScriptResult) -> float:
    return max((finding.ratio for finding in findings(result)), default=0.0)


def first(result: ScriptResult) -> str:
    """What verify names first."""
    named = result.stepwise.first or result.compiled.first
    if named is not None:
        return f"{named.kind} {named.name} {named.place}, step {named.step}".replace(" ,", ",")
    more = [*result.problems, *result.stepwise.missing, *result.compiled.missing]
    return result.error or (more or ["nothing"])[0]


@dataclass
class Count:
    """Of one kind of fault."""

    planted: int = 0
    caught: int = 0
    named: int = 0
    alike: int = 0  # change nothing beyond rounding


def plant(judge: Judge, names: list[str], programs: list[str], seed: int, each: int) -> Count:
    total = Count()
    for name in names:
        fault, count = FAULTS[name], Count()
        places = [
            (program, planted)
            for program in programs
            for planted in fault.find(judge.migrated(program, seed))
        ]
        drawn = random.Random(f"{seed} {name}").sample(places, min(each, len(places)))
        for program, planted in drawn:
            result = judge.verify(program, seed, planted, fault.dropout)
            said, count.planted = first(result), count.planted + 1
            if not result.passed:
                count.caught += 1
                kind = said.partition(" ")[0]
                right = kind in fault.shows
                count.named += right
                verdict = "caught" if right else "caught, but named"
            elif ratio(result) <= 2 * judge.farthest(program, seed, fault.dropout):
                count.alike += 1
                verdict = (
                    f"changes nothing beyond rounding ({ratio(result):.2g} of what is allowed)"
                )
            else:
                verdict = f"MISSED ({ratio(result):.2g} of what is allowed)"
            print(f"  {name}, {program}: {planted.line}\n      {verdict}: {said}", flush=True)
        print(
            f"{name} ({fault.size}): {count.caught} of {count.planted} caught, "
            f"{count.named} named right, {count.alike} change nothing beyond rounding",
            flush=True,
        )
        for part in vars(count):
            setattr(total, part, getattr(total, part) + getattr(count, part))
    return total


def alarms(judge: Judge, programs: list[str], seed: int, runs: int) -> int:
    wrong = 0
    for program, own in _seeds(programs, seed, runs):
        result = judge.verify(program, own)
        wrong += not result.passed
        said = "passed" if result.passed else f"FALSE ALARM: {first(result)}"
        print(f"  clean {program}, seed {own}: {said}, {ratio(result):.2g}", flush=True)
    return wrong


def _seeds(programs: list[str], seed: int, runs: int) -> Iterator[tuple[str, int]]:
    for number in range(runs):
        yield programs[number % len(programs)], seed + 1 + number // len(programs)


def main() -> int:
    everything = sorted(path.stem for path in PROGRAMS.glob("*.py"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--clean", type=int, default=40)
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--programs", nargs="*", choices=everything, default=everything)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        judge = Judge(find_target(given.target), given.python.absolute(), Path(work))
        total = plant(judge, given.faults, given.programs, given.seed, given.each)
        wrong = alarms(judge, given.programs, given.seed, given.clean)
    counted = total.planted - total.alike
    print(
        f"{given.target}: {total.caught} of {total.planted} faults caught, {total.named} of these "
        f"named right; {total.alike} change nothing beyond rounding; {wrong} false alarms in "
        f"{given.clean} clean runs"
    )
    return int(wrong > 0 or total.caught < LEAST * counted)


if __name__ == "__main__":
    sys.exit(main())
