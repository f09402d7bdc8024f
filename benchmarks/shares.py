"""The share of constructs that is done automatically in public repositories, and what is left.

    python benchmarks/shares.py CHECKOUTS --results AFTER [--tool TOOL] [--targets NAME …]
    python benchmarks/shares.py CHECKOUTS --results AFTER --before BEFORE [--reasons FILE]

CHECKOUTS is a folder of repositories. Each is looked at by `--check`, for each target; nothing is
written. `--tool` is a checkout of this project, another commit's for instance, and this one without
it. RESULTS keeps what was found, so that a run that was cut short goes on. With the results of two
commits, the table says how the share has changed: by each commit's own inventory, and of what the
first one counted how much the second one does. Then, by code, the constructs that were done in the
first and are reported in the second, and those that only the second one counts; with `--reasons`,
each of them with its reason, alike ones of a repository in one line of FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_VARIABLE = re.compile(r" ?\([^()]*\)|\b\d[\d.]*\b|['\"][^'\"]*['\"]|`[^`]*`|[\w./]+\.py\b")
TARGETS = ("torchax", "torch_xla", "torch_tpu")
DONE = ("rewritten", "kept")
Found = dict[str, str]  # "outcome code message" by the place of a construct


def found(folder: Path, target: str, tool: Path) -> Found:
    """What `--check` says of each construct of a repository."""
    command = [sys.executable, "-m", "migrator", str(folder), "--check", "--format", "json"]
    ran = subprocess.run(
        [*command, "--target", target], capture_output=True, text=True, cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(tool)},
    )  # fmt: skip
    if not ran.stdout:
        raise SystemExit(f"{folder.name}, {target}: {ran.stderr}")
    constructs: Found = {}
    for file in json.loads(ran.stdout)["files"]:
        path = Path(file["path"]).relative_to(folder)
        for each in file["diagnostics"]:
            if each["outcome"] in (*DONE, "reported"):
                start = each["start"]
                cell = each.get("cell", "")
                place = f"{path}:{cell}:{start['line']}:{start['column']}:{each['construct']}"
                constructs[place] = f"{each['outcome']} {each['code']} {each['message']}"
    return constructs


def is_done(outcome: str) -> bool:
    return outcome.partition(" ")[0] in DONE


def share(constructs: Found) -> float:
    """In percent; 100 where there is nothing to do."""
    return 100 * sum(map(is_done, constructs.values())) / len(constructs) if constructs else 100.0


def share_of_first(before: Found, after: Found) -> float:
    """Of what the first counted, how much is not reported by the second."""
    done = [place for place in before if is_done(after.get(place, DONE[0]))]
    return 100 * len(done) / len(before) if before else 100.0


def table(results: dict[str, Found], before: dict[str, Found]) -> str:
    targets = [t for t in TARGETS if any(key.endswith(f" {t}") for key in results)]
    names = sorted({key.split()[0] for key in results})
    lines = [
        "| repository | constructs | " + " | ".join(targets) + " |",
        "|---|---" + "|---" * len(targets) + "|",
    ]
    shares: dict[str, list[tuple[float, ...]]] = {target: [] for target in targets}
    for name in names:
        cells = []
        for target in targets:
            now, then = results[f"{name} {target}"], before.get(f"{name} {target}")
            row: tuple[float, ...] = (share(now),)
            if then is not None:
                row = share(then), share_of_first(then, now), share(now)
            shares[target].append(row)
            cells.append(" / ".join(f"{number:.0f}" for number in row))
        lines.append(f"| {name} | {len(results[f'{name} {targets[0]}'])} | {' | '.join(cells)} |")
    medians = [
        " / ".join(f"{statistics.median(numbers):.0f}" for numbers in zip(*shares[t], strict=True))
        for t in targets
    ]
    return "\n".join([*lines, f"| median | | {' | '.join(medians)} |"])


def changes(results: dict[str, Found], before: dict[str, Found]) -> str:
    """What was done and is reported, what was reported and is done, and what is newly reported."""
    lines = []
    for target in TARGETS:
        lost: Counter[str] = Counter()
        gained: Counter[str] = Counter()
        new: Counter[str] = Counter()
        for key in results.keys() & before.keys():
            if key.endswith(f" {target}"):
                for place, outcome in results[key].items():
                    was = before[key].get(place)
                    code = outcome.split()[1]
                    new[code] += was is None and not is_done(outcome)
                    lost[code] += was is not None and is_done(was) and not is_done(outcome)
                    gained[code] += was is not None and not is_done(was) and is_done(outcome)
        for what, counts in (
            ("left the count", lost),
            ("newly counted", new),
            ("now done", gained),
        ):
            listed = ", ".join(f"{code} {n}" for code, n in counts.most_common() if n)
            lines.append(f"{target}, {what}: {listed or 'none'}")
    return "\n".join(lines)


def reasons(results: dict[str, Found], before: dict[str, Found]) -> str:
    """What left the count, or is reported and only counted now: numbers on the targets, and why."""
    rows: dict[tuple[str, str, str, str], Counter[str]] = {}
    for key in results.keys() & before.keys():
        name, target = key.split()
        for place, outcome in results[key].items():
            was = before[key].get(place)
            if not is_done(outcome) and (was is None or is_done(was)):
                _, code, reason = outcome.split(maxsplit=2)
                reason = _VARIABLE.sub("…", reason).replace(target, "TARGET")
                what = "left" if was is not None else "new"
                rows.setdefault((what, name, code, reason), Counter())[target] += 1
    return "\n".join(
        f"{what} {name} {code} {'/'.join(str(count[t]) for t in TARGETS)} {reason}"
        for (what, name, code, reason), count in sorted(rows.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--before", type=Path, help="results of another commit")
    parser.add_argument("--reasons", type=Path, help="with --before: a file to write")
    parser.add_argument("--tool", type=Path, default=ROOT)
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
    asked = parser.parse_args()
    results: dict[str, Any] = (
        json.loads(asked.results.read_text()) if asked.results.exists() else {}
    )
    for folder in sorted(each for each in asked.checkouts.resolve().iterdir() if each.is_dir()):
        for target in asked.targets:
            if f"{folder.name} {target}" not in results:
                results[f"{folder.name} {target}"] = found(folder, target, asked.tool.resolve())
                asked.results.write_text(json.dumps(results))
    before = json.loads(asked.before.read_text()) if asked.before else {}
    print(table(results, before))
    if before:
        print(f"\n{changes(results, before)}")
        if asked.reasons:
            asked.reasons.write_text(f"{reasons(results, before)}\n")


if __name__ == "__main__":
    main()
