"""What was checked with the versions of a target, and what a newer one makes to be checked again.

    .venv-torch_tpu/bin/python benchmarks/versions.py torch_tpu

In an environment of the target, with the versions in question. Each row is one thing that depends
on versions: those that it was made with, those that are installed, and the command that renews it.
Exits with 1 where they differ. docs/newer-versions.md says in which order.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from installed_names import DISTRIBUTIONS, FOLDER
from packaging.requirements import Requirement

from migrator.analysis.python_requirements import pinned
from migrator.targets import targets
from migrator.targets.target import Target

ROOT = Path(__file__).resolve().parents[1]
MISSING = "not installed"
NAMES = ROOT / "tests/rules/torch_tpu_names.json"


@dataclass(frozen=True)
class Row:
    what: str
    made_with: str
    installed: str
    is_same: bool
    renew: str

    def __str__(self) -> str:
        cells = (self.what, self.made_with, self.installed, "" if self.is_same else self.renew)
        return f"| {' | '.join(cells)} |"


def installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return MISSING


def rows(target: Target) -> Iterator[Row]:
    environment = target.environment
    asked = [Requirement(pin.text) for pin in pinned(target)]
    pins = [pin for pin in asked if pin.marker is None or pin.marker.evaluate()]
    yield from (
        pin_row(pin, f"the extra {target.name} in pyproject.toml, then uv lock") for pin in pins
    )
    for package, limits in environment.runs_with.items():
        where = f"runs_with in migrator/targets/{target.name}/environment.py"
        yield pin_row(Requirement(f"{package}{limits}"), where, "what programs may have: ")
    for listed in environment.names:
        package, _, number = listed.rpartition("-")
        here = installed(DISTRIBUTIONS.get(package, package))
        same = here in (number, MISSING) and (FOLDER / f"{listed}.txt").is_file()
        yield Row(f"names of {package}", number, here, same,
                  f"benchmarks/installed_names.py {package}, names in environment.py")  # fmt: skip
    if environment.package == "torch_tpu":
        made = json.loads(NAMES.read_text(encoding="utf-8"))
        command = [sys.executable, str(ROOT / "benchmarks/torch_tpu_names.py")]
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        now = json.loads(shown) if shown else {}
        words = [f"{each.get('torch_tpu')} on {each.get('torch')}" for each in (made, now)]
        yield Row("names of torch.tpu", *words, now == made, "benchmarks/torch_tpu_names.py")


def pin_row(pin: Requirement, where: str, what: str = "") -> Row:
    here = installed(pin.name)
    same = here[0].isdigit() and pin.specifier.contains(here.partition("+")[0], prereleases=True)
    return Row(f"{what}{pin.name}", str(pin.specifier), here, same, where)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=sorted(targets()))
    found = list(rows(targets()[parser.parse_args().target]))
    print(Row("", "made with", "installed", False, "renew"), "|---|---|---|---|", sep="\n")
    print(*found, sep="\n")
    return int(not all(row.is_same for row in found))


if __name__ == "__main__":
    sys.exit(main())
