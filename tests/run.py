"""Set up what the tests need and run them: `python3 tests/run.py [--all | --fast] [OPTION…]`.

Makes one environment for each target with uv (the targets can not share one), from uv.lock; about
8.5 GB of disk for both, since uv links equal files. Then runs ruff, mypy and the tests, in as many
lanes as there are processors: tests that need a target in its environment, all others in any.
tests/durations.json says how long each file takes, and so which lane it is in.

The tests are in two tiers: the first runs, and a tenth of the second, which the commit chooses;
`--all` runs both. `--fast` needs no target: the engine and the rules, in half a minute.

Needs Python 3.11 or later and the package index, and for the tests of the HTML report a Chromium,
which is installed where that can be done (apt-get, as root). What each test took is kept in
`.tests/` (JUnit XML); `--record` writes tests/durations.json anew. All other options are pytest's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".tests"
DURATIONS = ROOT / "tests" / "durations.json"
PYTHONS = ">=3.11,<3.13"  # torch_xla's libtpu has no wheels for later ones
# XLA's own passes all run, but LLVM need not polish machine code that runs once, nor take it apart
# for several processors: that took most of the time.
QUICKLY = "--xla_backend_optimization_level=0"
BACK_ENDS = {
    "torchax": {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{QUICKLY} --xla_cpu_parallel_codegen_split_count=1",
    },
    "torch_xla": {"PJRT_DEVICE": "CPU", "XLA_FLAGS": QUICKLY},
}
FAST = ("analysis", "engine", "formats", "rules")
LANES = 8  # at most
UNKNOWN = 5.0  # seconds of a file that was never timed
SHOWN = 15  # tests that took longest


# ---- the environments ----------------------------------------------------------------------------


def find_uv() -> list[str]:
    """The command that starts uv; it is installed into a small environment if there is none."""
    if shutil.which("uv"):
        return ["uv"]
    folder = ROOT / ".venv-uv"
    python = interpreter(folder)
    if not python.exists():
        if importlib.util.find_spec("ensurepip") is None:
            sys.exit(
                f"{sys.executable} has no ensurepip, so no environment can be made: install uv, or "
                "ensurepip (Debian and Ubuntu: apt-get install python3-venv), and run this again"
            )
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-m", "uv", "--version"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "uv"], check=True)
    return [str(python), "-m", "uv"]


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def environment(uv: list[str], target: str | None) -> Path:
    """The interpreter of a target's environment, made or brought up to date; None: of no target."""
    folder = ROOT / f".venv-{target or 'fast'}"
    extra = ["--extra", target] if target else []
    subprocess.run(
        [*uv, "sync", "--frozen", "-q", "--python", PYTHONS, *extra],
        cwd=ROOT, env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder)}, check=True,
    )  # fmt: skip
    return interpreter(folder)


def find_chromium() -> None:
    """Install a browser if there is none; where that fails, its tests say what is missing."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    downloaded = Path.home() / ".cache" / "ms-playwright"  # by `playwright install chromium`
    if os.environ.get("CHROMIUM") or any(map(shutil.which, names)) or downloaded.exists():
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "chromium"]):
            subprocess.run(["apt-get", *command], env=env, stdout=subprocess.DEVNULL)


# ---- the lanes -----------------------------------------------------------------------------------


@dataclass
class Lane:
    """What runs one after the other: the files of each environment by one pytest."""

    number: int
    seconds: float = 0.0
    files: dict[str, list[str]] = field(default_factory=dict)  # by target; "": of any

    def runs(self, pythons: dict[str, Path]) -> Iterator[tuple[str, list[str]]]:
        """Targets, and the files for each; what needs none goes with the first."""
        rest = self.files.get("", [])
        for target in [t for t in pythons if t in self.files] or [next(iter(pythons))]:
            yield target, sorted([*self.files.get(target, []), *rest])
            rest = []


def targets_of(file: Path) -> list[str]:
    """In which environments a file of tests runs; [""] stands for any one."""
    room = file.relative_to(ROOT / "tests").parts
    if room[0] == "runtime":
        return [room[1]] if room[1] in BACK_ENDS else [*BACK_ENDS]
    return [*BACK_ENDS] if file.name.startswith("test_target_") else [""]


def known() -> dict[str, float]:
    """The seconds that files took, by name and target."""
    found: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
    return found


def plan(rooms: Sequence[str], count: int) -> list[Lane]:
    """The longest files first, each where least is."""
    taken = known()
    folders = [ROOT / "tests" / room for room in rooms]
    files = sorted(file for folder in folders for file in folder.rglob("test_*.py"))
    jobs = [
        (taken.get(f"{name} {target}".strip(), UNKNOWN), target, name)
        for file in files
        for name in [file.relative_to(ROOT).as_posix()]
        for target in targets_of(file)
    ]
    lanes = [Lane(number + 1) for number in range(count)]
    for seconds, target, name in sorted(jobs, reverse=True):
        lane = min(lanes, key=lambda lane: lane.seconds)
        lane.seconds += seconds
        lane.files.setdefault(target, []).append(name)
    return [lane for lane in lanes if lane.files]


def run(lane: Lane, pythons: dict[str, Path], options: list[str], failed: list[str]) -> None:
    """Run a lane; the first one's output is shown while it runs, that of the others behind it."""
    for target, files in lane.runs(pythons):
        name = f"lane {lane.number}{f', {target}' if target else ''}"
        stem = RESULTS / f"{lane.number}-{target or 'none'}"
        back_end = {**BACK_ENDS[target], "TPU_MIGRATE_TARGET": target} if target else {}
        command = [
            str(pythons[target]), "-m", "pytest", f"--junitxml={stem}.xml",
            "-o", "junit_family=xunit1", *files, *options,
        ]  # fmt: skip
        with stem.with_suffix(".txt").open("w") as log:
            print(f"== {name}: {len(files)} files, {stem.relative_to(ROOT)}.txt", flush=True)
            done = subprocess.run(
                command, cwd=ROOT, env={**os.environ, **back_end},
                stdout=None if lane.number == 1 else log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        if done.returncode not in (0, 5):  # 5: nothing was chosen
            failed.append(name)


# ---- where the time went -------------------------------------------------------------------------


def measured() -> tuple[dict[str, float], list[tuple[float, str]]]:
    """Seconds by file and target, and of each test."""
    files: Counter[str] = Counter()
    tests = []
    for path in sorted(RESULTS.glob("*.xml")):
        target = path.stem.partition("-")[2]
        for case in ElementTree.parse(path).iter("testcase"):
            file, seconds = case.get("file", ""), float(case.get("time", 0))
            wanted = targets_of(ROOT / file)
            files[file if wanted == [""] else f"{file} {target}"] += seconds
            tests.append((seconds, f"{file}::{case.get('name')} ({target})"))
    return dict(files), sorted(tests, reverse=True)


def show(
    files: dict[str, float], tests: list[tuple[float, str]], began: float, installed: float
) -> None:
    rooms: Counter[str] = Counter()
    for name, seconds in files.items():
        path, _, target = name.partition(" ")
        rooms[f"{Path(path).parent.as_posix()} {target}".strip()] += seconds
    print("\n== where the time went, in seconds")
    for name, seconds in rooms.most_common():
        print(f"{seconds:8.0f}  {name}")
    print(f"\n== the {SHOWN} longest of {len(tests)} tests")
    for seconds, name in tests[:SHOWN]:
        print(f"{seconds:8.1f}  {name}")
    now = time.monotonic()
    print(
        f"\n== {now - began:.0f} s in all: {installed - began:.0f} to set up, "
        f"{now - installed:.0f} to run",
        flush=True,
    )


def record(files: dict[str, float]) -> None:
    """What was not run keeps its seconds, as long as it is there."""
    there = {k: v for k, v in known().items() if (ROOT / k.partition(" ")[0]).is_file()}
    rounded = {name: round(seconds, 1) for name, seconds in sorted({**there, **files}.items())}
    DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n")


def main() -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--all", action="store_true", help="both tiers, whole")
    tier.add_argument("--fast", action="store_true", help="only what needs no target")
    parser.add_argument("--record", action="store_true", help="write tests/durations.json")
    parser.add_argument("--lanes", type=int, default=min(LANES, os.cpu_count() or 1))
    args, options = parser.parse_known_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # torch takes seconds more without bytecode
    uv = find_uv()
    if args.fast:
        pythons, rooms = {"": environment(uv, None)}, FAST
    else:
        find_chromium()
        pythons = {target: environment(uv, target) for target in BACK_ENDS}
        rooms = ("",)
    installed = time.monotonic()
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    options += ["--all"] * args.all
    failed: list[str] = []
    lanes = plan(rooms, args.lanes)
    threads = [
        threading.Thread(target=run, args=(lane, pythons, options, failed)) for lane in lanes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in sorted(RESULTS.glob("*.txt")):
        print(f"\n== {log.relative_to(ROOT)}\n{log.read_text(errors='replace')}", end="")
    files, tests = measured()
    show(files, tests, began, installed)
    if args.record:
        record(files)
    if failed:
        print(f"FAILED: {'; '.join(sorted(failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
