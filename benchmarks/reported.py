"""What is reported most in public repositories: which code, of which library or name.

    python benchmarks/reported.py CHECKOUTS --results benchmarks/reported.json [--target TARGET]

CHECKOUTS is a folder of repositories. Each is looked at by `remaining --format json`, which writes
nothing. A row of RESULTS is a code and the name that it was found by, with the number of constructs
and of repositories, and whether a page shows the cure. A program that stays with all its files
counts by the lines that are in its way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MOST = 50


def remaining(folder: Path, target: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "migrator", "remaining", ".", "--format", "json"]
    ran = subprocess.run(
        [*command, "--target", target, "--isolated"], capture_output=True, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if not ran.stdout:
        raise SystemExit(f"{folder.name}: {ran.stderr}")
    found: list[dict[str, Any]] = json.loads(ran.stdout)["remaining"]
    return found


def rows(folders: list[Path], target: str) -> list[dict[str, Any]]:
    """One for each code and name, those of most repositories first."""
    constructs: Counter[tuple[str, str]] = Counter()
    repositories: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    cured: dict[tuple[str, str], bool] = {}
    for folder in folders:
        for each in remaining(folder, target):
            key = each["code"], each["name"]
            constructs[key] += 1
            repositories[key].add(folder.name)
            cured[key] = cured.get(key, False) or bool(each["by_hand"])
    found = sorted(constructs, key=lambda key: (-len(repositories[key]), -constructs[key], key))
    return [
        {
            "code": key[0], "name": key[1], "constructs": constructs[key],
            "repositories": len(repositories[key]), "by_hand": cured[key],
        }
        for key in found
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--target", default="torchax")
    asked = parser.parse_args()
    folders = sorted(each for each in asked.checkouts.resolve().iterdir() if each.is_dir())
    found = rows(folders, asked.target)
    lines = ",\n".join(json.dumps(row) for row in found)
    asked.results.write_text(f"[\n{lines}\n]\n")
    most = found[:MOST]
    print(
        f"{len(folders)} repositories, {asked.target}: {sum(r['constructs'] for r in found)} left"
    )
    print(f"of the {len(most)} that most have, {sum(r['by_hand'] for r in most)} are shown by hand")


if __name__ == "__main__":
    main()
