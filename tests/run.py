"""Set up what the tests need and run them: `python3 tests/run.py [--all | --fast] [OPTION…]`.

Makes one environment for each target with uv (the targets cannot share one), from uv.lock; about
8.5 GB of disk for both, since uv links equal files. Then runs ruff, mypy and the tests, in as many
lanes as there are processors: tests that need a target in its environment, all others in any. A
lane takes the longest job that is left, by tests/durations.json: a file, or some small ones of a
folder, in a process of its own. These are forked from one that has imported what takes long.

The tests are in two tiers: the first runs, and a twentieth of the second, which the commit chooses;
`--all` runs both. `--fast` needs no target: the engine and the rules. `--keras`
runs those that need Keras and TensorFlow, in an environment of their own (2.7 GB more), and
`--torch-tpu` those that need torch_tpu (7 GB): they are in no other run.

Needs Python 3.11 or later and the package index, and for the tests of the HTML report a Chromium,
which is installed where that can be done (apt-get, as root). What each test took is kept in
`.tests/` (JUnit XML, and what was printed); `--record` writes tests/durations.json anew. All other
options are pytest's.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "migrator" / "verify"))  # the migrator itself needs what is installed
from warm import warm  # noqa: E402

del sys.path[0]

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
    # Set-up adds the second flag, if it is not there; with others a program could not be forked.
    "torch_xla": {
        "PJRT_DEVICE": "CPU",
        "XLA_FLAGS": f"{QUICKLY} --xla_cpu_enable_fast_min_max=false",
    },
}
# What the interpreters that tests start import anyway, and what the tests import besides. A program
# that is given other variables than a library has read at its import imports that itself.
STARTED = {
    "": ((),),
    "keras_jax": ((),),
    "torch_tpu": (("torch", "torch._dynamo"),),
    "torchax": (
        ("torch", "torch._dynamo", "torchvision", "jaxlib._jax", "jaxlib.mlir.dialects.mhlo",
         "jaxlib.mlir.dialects.stablehlo", "ml_dtypes", "opt_einsum", "scipy"),
        ("jax", "jax.numpy"),
    ),
    "torch_xla": (
        ("torch", "torch._dynamo", "torchvision"),
        ("torch_xla", "torch_xla.core.xla_model"),
    ),
}  # fmt: skip
IMPORTED = {
    "": ("libcst", "hypothesis"),
    "keras_jax": ("libcst", "hypothesis"),
    "torch_tpu": ("libcst",),
    "torchax": ("torchax", "hypothesis", "libcst", "jinja2"),
    "torch_xla": ("scipy", "hypothesis", "libcst", "jinja2"),
}
FAST = ("analysis", "engine", "formats", "rules")
# Rooms that run by an option of their own alone, and the environment that each has.
APART = {
    "keras_scripts": {
        "keras_jax": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICKLY, "TF_CPP_MIN_LOG_LEVEL": "3"},
    },
    "torch_tpu": {
        "torch_tpu": {
            # by which torch finds XLA's CPU client as its TPU
            "PYTHONPATH": str(ROOT / "migrator/targets/torch_tpu/on_cpu"),
            "XLA_FLAGS": QUICKLY, "TF_CPP_MIN_LOG_LEVEL": "3", "TPU_SKIP_MDS_QUERY": "1",
        },
    },
}  # fmt: skip
OPTIONS = {"--keras": "keras_scripts", "--torch-tpu": "torch_tpu"}
LANES = 8  # at most
WORTHWHILE = 20.0  # seconds of a job, if there are enough files
UNKNOWN = 5.0  # seconds of a file that was never timed
SHOWN = 15  # tests that took longest
# Temporary files are in memory where there is room: tests write and remove many small ones.
MEMORY, ROOM = Path("/dev/shm"), 8 * 2**30  # bytes


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
    extra += ["--group", "trainers"] if target in BACK_ENDS else []
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


@dataclass(frozen=True)
class Job:
    """What one pytest runs."""

    seconds: float
    target: str  # "": of any
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        first = self.files[0].removesuffix(".py").replace("/", ".").removeprefix("tests.")
        more = f"+{len(self.files) - 1}" if len(self.files) > 1 else ""
        return f"{first}{more}"


def targets_of(file: Path) -> list[str]:
    """In which environments a file of tests runs; [""] stands for any one."""
    room = file.relative_to(ROOT / "tests").parts
    if room[0] in APART:
        return [*APART[room[0]]]
    if room[0] == "runtime":
        own = room[1].removeprefix("for_")
        return [own] if own in BACK_ENDS else [*BACK_ENDS]
    return [*BACK_ENDS] if file.name.startswith("test_target_") else [""]


OF_TARGETS = {"torch", "torchvision", "numpy", "tpu_runtime"}  # modules of their environments


def needs_a_target(file: Path) -> bool:
    """Whether a file of tests can only be read where a target is installed."""
    body = ast.parse(file.read_text("utf-8")).body
    taken = [node for node in body if isinstance(node, ast.ImportFrom)]
    names = {each.name for node in body if isinstance(node, ast.Import) for each in node.names}
    names |= {str(node.module) for node in taken}
    given = {each.name for node in taken if node.module == "target" for each in node.names}
    return bool({name.partition(".")[0] for name in names} & OF_TARGETS) or "TARGET" in given


def known() -> dict[str, float]:
    """The seconds that files took, by name and target."""
    found: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
    return found


def plan(rooms: tuple[str, ...]) -> list[Job]:
    """The longest first."""
    taken = known()
    by_place: defaultdict[tuple[Path, str], list[tuple[float, str]]] = defaultdict(list)
    for folder in (ROOT / "tests" / room for room in rooms):
        for file in folder.rglob("test_*.py"):
            if rooms == FAST and needs_a_target(file):
                continue
            for target in targets_of(file):
                room = file.relative_to(ROOT / "tests").parts[0]
                if room in APART and rooms != (room,):
                    continue
                name = file.relative_to(ROOT).as_posix()
                seconds = taken.get(f"{name} {target}".strip(), UNKNOWN)
                by_place[file.parent, target].append((seconds, name))
    jobs = []
    for (_, target), files in by_place.items():
        files.sort()
        while files:
            group = [files.pop()]
            while files and sum(seconds for seconds, _ in group) + files[0][0] <= WORTHWHILE:
                group.append(files.pop(0))
            names = tuple(name for _, name in group)
            jobs.append(Job(sum(seconds for seconds, _ in group), target, names))
    return sorted(jobs, key=lambda job: -job.seconds)


class Lanes:
    """Each runs one job after the other."""

    def __init__(self, pythons: dict[str, Path], jobs: list[Job], options: list[str]) -> None:
        self.pythons, self.options = pythons, options
        self.jobs = jobs
        self.failed: list[Path] = []  # what they printed
        self.warm: dict[str, tuple[Path, Path]] = {}
        self.temporary: dict[str, str] = {}

    def run(self, count: int) -> None:
        with contextlib.ExitStack() as stack:
            if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
                folder = tempfile.TemporaryDirectory(prefix="test-", dir=MEMORY)
                self.temporary = {"TMPDIR": stack.enter_context(folder)}
            for target, python in self.pythons.items():
                environment, started = self._environment(target), [python]
                for modules in STARTED[target]:  # each is forked from the one before, if there is
                    forks = warm(started[-1], modules, environment, programs_see_it=True)
                    started.append(stack.enter_context(forks))
                tests = warm(python, IMPORTED[target], environment, forked_from=started[-1])
                own = stack.enter_context(tests)
                self.warm[target] = (own, started[-1])
            lanes = stack.enter_context(ThreadPoolExecutor(count))
            list(lanes.map(self._run, self.jobs))  # an error of one is raised here

    def _environment(self, target: str) -> dict[str, str]:
        known = {name: env for room in (BACK_ENDS, *APART.values()) for name, env in room.items()}
        back_end = {**known[target], "TPU_MIGRATE_TARGET": target} if target else {}
        # Where a program crashes is said; torch's threads that wait leave the processor to others.
        given = {"PYTHONFAULTHANDLER": "1", "OMP_WAIT_POLICY": "PASSIVE", "TPU_RUNTIME_REPORT": "0"}
        return {**os.environ, **given, **self.temporary, **back_end}

    def _run(self, job: Job) -> None:
        target = job.target if job.target in self.pythons else next(iter(self.pythons))
        python, started = self.warm[target]
        if not job.target:  # a target's libraries change torch
            python = started
        stem = RESULTS / f"{job.name}--{target}"
        xml, log = (stem.with_name(f"{stem.name}{end}") for end in (".xml", ".txt"))
        command = [
            str(python), "-m", "pytest", f"--junitxml={xml}", "-o", "junit_family=xunit1",
            *job.files, *self.options,
        ]  # fmt: skip
        environment = {
            **self._environment(target),
            "TPU_MIGRATE_WARM": str(started),
            "TPU_MIGRATE_PYTHON": str(self.pythons[target]),
        }
        began = time.monotonic()
        with log.open("w") as sink:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=sink,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        seconds = time.monotonic() - began
        failed = done.returncode not in (0, 5)  # 5: nothing was chosen
        if failed:
            self.failed.append(log)
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1].strip("= ")
        said = f"FAILED, {log.relative_to(ROOT)}" if failed else last.rpartition(" in ")[0]
        print(f"{seconds:6.1f} s  {job.name} {job.target}: {said}", flush=True)


# ---- where the time went -------------------------------------------------------------------------


def measured() -> tuple[dict[str, float], list[tuple[float, str]]]:
    """Seconds by file and target, and of each test."""
    files: Counter[str] = Counter()
    tests = []
    for path in sorted(RESULTS.glob("*.xml")):
        target = path.stem.rpartition("--")[2]
        for case in ElementTree.parse(path).iter("testcase"):
            file, seconds = case.get("file", ""), float(case.get("time", 0))
            wanted = targets_of(ROOT / file)
            files[file if wanted == [""] else f"{file} {target}"] += seconds
            tests.append((seconds, f"{file}::{case.get('name')} ({target})"))
    return dict(files), sorted(tests, reverse=True)


def show_second_tier() -> None:
    """Which tests of it were chosen, and how to choose them again."""
    texts = [log.read_text(errors="replace") for log in sorted(RESULTS.glob("*.txt"))]
    lines = [line for text in texts for line in text.partition("= second tier =")[2].splitlines()]
    chosen = [*dict.fromkeys(line for line in lines if line.startswith("  tests/"))]
    samples = sorted({m[1] for line in lines if (m := re.search(r"--sample (.+); --all", line))})
    if samples:
        print(f"\n== {len(chosen)} of the second tier, chosen by --sample {', '.join(samples)}")
        print("\n".join(chosen))


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
    for option, room in OPTIONS.items():
        help = f"only what needs {next(iter(APART[room]))}"
        tier.add_argument(option, dest="apart", action="store_const", const=room, help=help)
    parser.add_argument("--record", action="store_true", help="write tests/durations.json")
    parser.add_argument("--lanes", type=int, default=min(LANES, os.cpu_count() or 1))
    args, options = parser.parse_known_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # torch takes seconds more without bytecode
    uv = find_uv()
    if args.apart:
        pythons = {target: environment(uv, target) for target in APART[args.apart]}
        rooms: tuple[str, ...] = (args.apart,)
    elif args.fast:
        pythons, rooms = {"": environment(uv, None)}, FAST
    else:
        find_chromium()
        pythons = {target: environment(uv, target) for target in BACK_ENDS}
        rooms = ("",)
    installed = time.monotonic()
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    lanes = Lanes(pythons, plan(rooms), [*options, *["--all"] * args.all])
    lanes.run(args.lanes)
    show_second_tier()
    for log in sorted(lanes.failed):
        print(f"\n== {log.relative_to(ROOT)}\n{log.read_text(errors='replace')}", end="")
    files, tests = measured()
    show(files, tests, began, installed)
    if not args.apart:
        print(f"not in this run: what has environments of its own ({', '.join(OPTIONS)})")
    if args.record:
        record(files)
    if lanes.failed:
        print(f"FAILED: {', '.join(sorted(log.stem for log in lanes.failed))}")
    return 1 if lanes.failed else 0


if __name__ == "__main__":
    sys.exit(main())
