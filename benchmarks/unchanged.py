"""Whether a change of the tool changes what it makes of public code: output and diagnostics.

    python benchmarks/unchanged.py CHECKOUTS --record before/         # on the commit before
    python benchmarks/unchanged.py CHECKOUTS --against before/        # on the commit after

CHECKOUTS is a folder with a clone of each repository of benchmarks/public_repositories.txt, at the
commit that stands there, as `owner+name`. Nothing in it is written. Exits with 1 where a file
differs, after the first lines of each difference.
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from migrator.runs.run import migrate_paths  # noqa: E402

LISTED = ROOT / "benchmarks" / "public_repositories.txt"
SHOWN = 12  # lines of a difference


def repositories() -> dict[str, str]:
    """The commit of each repository."""
    lines = (line.split() for line in LISTED.read_text().splitlines())
    return {words[0].replace("/", "+"): words[1] for words in lines if words and words[0] != "#"}


@dataclass
class Outcome:
    """What became of a file: all that is said of it, and its text where that changes."""

    said: list[str]
    text: str

    @property
    def lines(self) -> list[str]:
        return [*self.said, *self.text.splitlines()]


def results(folder: Path, target: str) -> dict[str, Outcome]:
    """What becomes of each file of a checkout, and under "(run)" of the run itself."""
    found: dict[str, Outcome] = {}
    report = migrate_paths([folder], target)
    for file in report.files:
        said = [
            f"{d.range.line}:{d.range.column} {d.code} {d.outcome} {d.severity} {d.message}"
            for d in file.result.diagnostics
        ]
        text = file.result.source.decode(errors="replace") if file.result.changed else ""
        found[str(file.path.resolve().relative_to(folder.resolve()))] = Outcome(said, text)
    companions = sorted(str(p.resolve().relative_to(folder.resolve())) for p in report.companions)
    found["(run)"] = Outcome([*report.errors, *report.notes], "\n".join(companions))
    return found


def differences(before: dict[str, Outcome], after: dict[str, Outcome]) -> int:
    """Print what differs; the number of files that do."""
    count = 0
    absent = Outcome([], "")
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, absent), after.get(name, absent)
        if old == new:
            continue
        count += 1
        diff = list(difflib.unified_diff(old.lines, new.lines, lineterm="", n=0))
        print(f"  {name}", *(f"    {line}" for line in diff[2 : 2 + SHOWN]), sep="\n")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--record", type=Path, metavar="FOLDER")
    parser.add_argument("--against", type=Path, metavar="FOLDER")
    parser.add_argument("-k", metavar="TEXT", default="", help="only repositories with TEXT")
    parser.add_argument("--target", action="append")
    options = parser.parse_args()
    if (options.record is None) == (options.against is None):
        parser.error("give --record or --against")
    files = differing = 0
    for name, commit in repositories().items():
        if options.k not in name:
            continue
        folder = options.checkouts / name
        head = subprocess.run(
            ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
        if head != commit:
            sys.exit(f"{folder} is at {head or 'no commit'}, not at {commit}")
        for target in options.target or ("torchax", "torch_xla"):
            began = time.process_time()
            found = results(folder, target)
            taken = time.process_time() - began
            files += len(found) - 1
            print(f"{name} {target}: {len(found) - 1} files, {taken:.0f} s", flush=True)
            kept = (options.record or options.against) / f"{name}.{target}.json"
            if options.record:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(
                    json.dumps({name: vars(outcome) for name, outcome in found.items()})
                )
            else:
                before = json.loads(kept.read_text())
                differing += differences({n: Outcome(**o) for n, o in before.items()}, found)
    print(f"{files} files, {differing} differ" if options.against else f"{files} files recorded")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
