"""The table of docs/torch-tpu.md of public programs, from the lines of a run that compared them.

    python benchmarks/match_table.py LOG... [--why REASONS]

A line of a log is `NAME torch_tpu ran match 28/28/28 …`: how many of the numbers that a program
prints are the original's closely, to 5 %, and all; later logs win. REASONS has `NAME: TEXT` lines.
"""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

LINE = re.compile(
    r"(\S+) +torch_tpu +(ran|FAILED rc=-?\d+) +(match|ON CPU|DIFFERS) +(rng )?(\d+)/(\d+)/(\d+)"
)


def row(found: re.Match[str], why: str) -> str:
    name, ran, match, drawn, _, near, total = found.groups()
    result = "raises" if ran != "ran" else {"match": "matches"}.get(match, match.lower())
    if ran == "FAILED rc=124":
        result = "not done"
    if match == "match" and (drawn or total == "0"):
        result = "runs"  # its numbers are drawn, or it prints none
    numbers = "" if total == "0" or drawn else f"{near} of {total}"
    return f"| {name} | {result} | {numbers} | {why} |"


def table(lines: Iterable[str], reasons: dict[str, str]) -> str:
    found = {each[1]: each for each in map(LINE.match, lines) if each}
    rows = [row(each, reasons.get(name, "")) for name, each in sorted(found.items())]
    return "\n".join(["| program | on torch_tpu | numbers | |", "|---|---|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--why", type=Path)
    options = parser.parse_args()
    told = options.why.read_text().splitlines() if options.why else []
    reasons = {name: text for name, _, text in (line.partition(": ") for line in told)}
    print(table((x for log in options.logs for x in log.read_text().splitlines()), reasons))


if __name__ == "__main__":
    main()
