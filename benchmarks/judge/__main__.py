"""How good a judge `tpu-migrate verify` is: faults planted in migrated programs, and clean runs.

    python benchmarks/judge --target torchax --python PYTHON [--seed 1] [--each 5] [--clean 40]
                            [--faults NAME...] [--programs NAME...]
                            [--no-golden] [--results FILE]

The programs in `programs/` are GPU scripts as people write them. Each is recorded on the CPU in the
place of a GPU, migrated, and verified with a fault in the migrated copy, `--each` of every kind in
`faults.py`, at places that are drawn by `--seed`. Printed: of each kind, how many were caught (a
FAIL), of how many verify named a value first that this kind of fault changes first, and those that
were missed, with the largest difference by what is allowed. A missed fault is listed apart, as one
that changes nothing beyond rounding, where no value differs by more than twice what it does in the
clean run of the same program. Faults in what a device draws are verified without a golden, whose
other seeds verify needs; those that are only noted are listed apart, too. Then `--clean` runs
without a fault, each program with other seeds: false alarms, and false notes on draws.
`--no-golden`: the original runs each time, and float64 decides what may be rounding. `--results`
keeps each outcome in a file, from which a run that was cut short goes on: of one commit, and one
target. Exit code 1 below 95 % caught, or with a false alarm.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from faults import FAULTS, Planted

from migrator import migrate_paths, migrate_source
from migrator.config import Config
from migrator.targets import Target, find_target
from migrator.verify.comparisons import Finding
from migrator.verify.originals import record_script
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

PROGRAMS = Path(__file__).resolve().parent / "programs"
LEAST = 0.95  # of the faults that change anything


@dataclass
class Judge:
    """Verifies programs on one target, in folders of its own; goldens are recorded once."""

    target: Target
    python: Path
    work: Path
    has_goldens: bool = True
    goldens: dict[tuple[str, int, bool], Path] = field(default_factory=dict)
    clean: dict[tuple[str, int, bool], float] = field(default_factory=dict)

    def source(self, program: str, seed: int) -> str:
        text = (PROGRAMS / f"{program}.py").read_text("utf-8")
        return text.replace("manual_seed(1)", f"manual_seed({seed})")

    def migrated(self, program: str, seed: int) -> str:
        text = self.source(program, seed)
        return migrate_source(text, target=self.target.name).source.decode()

    def verify(
        self,
        program: str,
        seed: int,
        planted: Planted | None = None,
        dropout: bool = False,
        drawn: bool = False,
    ) -> ScriptResult:
        settings = RecordSettings(
            dropout=dropout
        )  # verify's own seed: the program's hides a late one
        folder = self._folder(program, seed)
        fresh = drawn or not self.has_goldens
        golden = None if fresh else self._golden(program, seed, settings)
        name = f"{program}.py"
        compiled = self.work / "compiled"
        compiled.mkdir(exist_ok=True)

        def migrate(source: Path, target: str, to: Path) -> list[str]:
            report = migrate_paths(
                [source], target=target, config=Config(runtime="copy"), output=to
            )
            (to.parent / "jax_cache").symlink_to(compiled)  # the same programs, again and again
            if planted is not None:
                (to / name).write_text(planted.source, "utf-8")
            return report.errors

        options = RunOptions(python=self.python, migrate=migrate)
        with contextlib.chdir(folder):
            return verify_against(Path(name), [], self.target, golden, settings, options)

    def farthest(self, program: str, seed: int, dropout: bool) -> float:
        """The largest difference of a clean run, by what is allowed."""
        key = program, seed, dropout
        if key not in self.clean:
            self.clean[key] = ratio(self.verify(*key[:2], dropout=dropout))
        return self.clean[key]

    def _golden(self, program: str, seed: int, settings: RecordSettings) -> Path:
        key = program, seed, settings.dropout
        if key not in self.goldens:
            golden = self.work / f"golden-{program}-{seed}-{settings.dropout:d}"
            own = patch.dict(os.environ, self.target.host.originals)  # without the target's library
            with own, contextlib.chdir(self._folder(program, seed)):
                record_script(Path(f"{program}.py"), [], golden, self.python, settings)
            self.goldens[key] = golden
        return self.goldens[key]

    def _folder(self, program: str, seed: int) -> Path:
        """The program's, with it alone."""
        folder = self.work / f"{program}-{seed}"
        folder.mkdir(exist_ok=True)
        (folder / f"{program}.py").write_text(self.source(program, seed), "utf-8")
        return folder


def findings(result: ScriptResult) -> list[Finding]:
    return [*result.stepwise.findings, *result.compiled.findings]


def ratio(result: ScriptResult) -> float:
    return max((finding.ratio for finding in findings(result)), default=0.0)


def drawn_note(result: ScriptResult) -> str:
    """The note on losses with the device's own random numbers; "" for none."""
    return next((note for note in result.notes if "own random numbers the loss" in note), "")


def first(result: ScriptResult) -> str:
    """What verify names first."""
    if any("own random numbers" in text for text in result.problems) or drawn_note(result):
        return "draws"
    named = result.stepwise.first or result.compiled.first
    if named is not None:
        return f"{named.kind} {named.name} {named.place}, step {named.step}".replace(" ,", ",")
    runs = result.stepwise, result.compiled
    more = [*result.problems, *(place for run in runs for place in (*run.missing, *run.surplus))]
    return (more or ["nothing"])[0]


@dataclass(frozen=True)
class Outcome:
    """Of one verification. ``fault``: "" for a clean run; ``planted``: a digest of the program with
    it; ``clean``: the largest difference of the clean run of a program in which a fault was missed,
    as ``ratio`` by what is allowed; ``noted``: a PASS with a note on what the device draws."""

    fault: str
    program: str
    seed: int
    planted: str
    passed: bool
    first: str
    ratio: float
    clean: float = 0.0
    noted: bool = False

    @property
    def is_named_right(self) -> bool:
        return not self.passed and self.first.partition(" ")[0] in FAULTS[self.fault].shows

    @property
    def changes_nothing(self) -> bool:
        """Beyond rounding. Of a fault in what the device draws, no other run shows anything."""
        return self.passed and not FAULTS[self.fault].drawn and self.ratio <= 2 * self.clean

    @property
    def verdict(self) -> str:
        if not self.passed:
            return "caught" if self.is_named_right else "caught, but named"
        if self.noted:
            return "noted"
        what = "changes nothing beyond rounding" if self.changes_nothing else "MISSED"
        return f"{what} ({self.ratio:.2g} of what is allowed, {self.clean:.2g} without it)"


class Results:
    """The outcomes so far: also those of a run before, where they are kept in a file."""

    def __init__(self, judge: Judge, file: Path | None) -> None:
        self.judge, self.file = judge, file
        lines = file.read_text("utf-8").splitlines() if file and file.exists() else []
        known = [Outcome(**json.loads(line)) for line in lines]
        self.known = {(o.fault, o.program, o.seed, o.planted): o for o in known}

    def of(self, fault: str, program: str, seed: int, planted: Planted | None = None) -> Outcome:
        source = planted.source if planted is not None else ""
        key = fault, program, seed, sha256(source.encode()).hexdigest()
        if key not in self.known:
            dropout = planted is not None and FAULTS[fault].dropout
            drawn = planted is None or FAULTS[fault].drawn
            result = self.judge.verify(program, seed, planted, dropout, drawn)
            if result.error is not None:  # nothing was verified: that is no fault caught
                raise SystemExit(f"{fault or 'clean'}, {program}: {result.error}")
            missed = result.passed and planted is not None and not drawn
            clean = self.judge.farthest(program, seed, dropout) if missed else 0.0
            self.known[key] = found = Outcome(
                *key,
                result.passed,
                first(result),
                ratio(result),
                clean,
                result.passed and bool(drawn_note(result)),
            )
            if self.file is not None:
                with self.file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(asdict(found)) + "\n")
        return self.known[key]


def plant(results: Results, name: str, programs: list[str], seed: int, each: int) -> list[Outcome]:
    fault = FAULTS[name]
    places = [
        (program, planted)
        for program in programs
        for planted in fault.find(results.judge.migrated(program, seed))
    ]
    drawn = random.Random(f"{seed} {name}").sample(places, min(each, len(places)))
    found = []
    for program, planted in drawn:
        found.append(results.of(name, program, seed, planted))
        print(f"  {name}, {program}: {planted.line}\n      {found[-1].verdict}: {found[-1].first}",
              flush=True)  # fmt: skip
    return found


def row(what: str, size: str, found: list[Outcome]) -> str:
    caught, named = sum(not o.passed for o in found), sum(o.is_named_right for o in found)
    alike = sum(o.changes_nothing for o in found)
    noted = sum(o.noted for o in found)
    missed = len(found) - caught - alike - noted
    return f"| {what} | {size} | {len(found)} | {caught} | {named} | {noted} | {alike} | {missed} |"


def alarms(results: Results, programs: list[str], seed: int, runs: int) -> tuple[int, int]:
    """How many clean runs fail, and how many have a note on what the device draws."""
    wrong = notes = 0
    for program, own in _seeds(programs, seed, runs):
        found = results.of("", program, own)
        wrong += not found.passed
        notes += found.noted
        said = "passed" if found.passed else f"FALSE ALARM: {found.first}"
        said += ", with a false note" * found.noted
        print(f"  clean {program}, seed {own}: {said}, {found.ratio:.2g}", flush=True)
    return wrong, notes


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
    parser.add_argument("--no-golden", action="store_true")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--programs", nargs="*", choices=everything, default=everything)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        judge = Judge(
            find_target(given.target), given.python.absolute(), Path(work), not given.no_golden
        )
        results = Results(judge, given.results)
        each = {
            name: plant(results, name, given.programs, given.seed, given.each)
            for name in given.faults
        }
        wrong, notes = alarms(results, given.programs, given.seed, given.clean)
    total = [outcome for found in each.values() for outcome in found]
    print("| fault | | planted | caught | named right | noted | no change but rounding | missed |")
    print("|---|---|---|---|---|---|---|---|")
    for name, found in each.items():
        print(row(name, FAULTS[name].size, found))
    print(row("all", "", total))
    print(f"{given.target}: {wrong} false alarms, {notes} false notes in {given.clean} clean runs")
    caught = sum(not o.passed or o.noted for o in total)
    counted = sum(not o.changes_nothing for o in total)
    return int(wrong > 0 or caught < LEAST * counted)


if __name__ == "__main__":
    sys.exit(main())
