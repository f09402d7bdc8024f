"""What runs leave that are killed at random points: nothing, once the next run has ended.

    python benchmarks/crashes.py [--runs 200] [--seed 0] [--way=-o]

Runs in place and with `-o` are killed (SIGKILL) at a random moment of their time: half of them
anywhere, half of them while they write; every tenth on a project that takes several processes.
Prints for each way how many were still at work then, and, with exit code 1 if there is any:

mixed: the next run does not make what an undisturbed run makes; lost: a source holds neither what
it held nor what it becomes; stray: a temporary after the next run; refused: the next run fails;
orphans: processes that go on a second later.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

SIZES = {"small": (12, 10), "large": (40, 400)}  # files, functions in each
ROOT = Path(__file__).resolve().parents[1]
WAYS = ("in place", "-o")
KINDS = ("mixed", "lost", "stray", "refused", "orphans")
SOURCE = "import torch\n\nmodel = torch.nn.Linear(2, 2).cuda()\ntorch.cuda.manual_seed(0)\n"
FILLER = "def f{0}(x):\n    return x + {0}\n\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="of each way")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--way", choices=WAYS, help="one of them alone")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    found = {way: Counter[str]() for way in WAYS if arguments.way in (None, way)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TPU_MIGRATE_STATE"] = str(folder / "state")
        os.environ["TPU_MIGRATE_CACHE"] = str(folder / "cache")
        trials = [Trial(folder / size, *numbers) for size, numbers in SIZES.items()]
        for way, counts in found.items():
            times = [trial.undisturbed(way) for trial in trials]
            for number in range(arguments.runs):
                large = number % 10 == 9
                whole, begins = times[large]
                moment = chance.uniform(chance.choice((0.0, begins)), whole * 1.05)
                counts += trials[large].killed(way, moment)
            print(f"{way:9} {arguments.runs} runs, {counts['killed']} killed, ", end="")
            print(", ".join(f"{kind} {counts[kind]}" for kind in KINDS), flush=True)
    sys.exit(1 if any(counts[kind] for counts in found.values() for kind in KINDS) else 0)


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


class Trial:
    """A project, and what has to become of it."""

    def __init__(self, folder: Path, files: int, functions: int) -> None:
        self.folder, self.project, self.output = folder, folder / "project", folder / "out"
        self.state = Path(os.environ["TPU_MIGRATE_STATE"])
        self.wanted: dict[str, dict[str, bytes]] = {}
        for number in range(files):
            file = self.project / f"part{number % 4}" / f"m{number}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(SOURCE + "".join(FILLER.format(n) for n in range(functions)))
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
            subprocess.run(["git", *identity, *command], cwd=self.project, check=True)
        self.before = _tree(self.project)

    def start(self, way: str) -> subprocess.Popen[bytes]:
        command = ["-m", "migrator", str(self.project), "--target", "torchax", "--jobs", "2"]
        if way == "-o":
            command += ["-o", str(self.output)]
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def reset(self) -> None:
        for command in (["reset", "-q", "--hard"], ["clean", "-qfdx"]):
            subprocess.run(["git", *command], cwd=self.project, check=True)
        for folder in (self.output, self.state, Path(os.environ["TPU_MIGRATE_CACHE"])):
            shutil.rmtree(folder, ignore_errors=True)

    def result(self, way: str) -> dict[str, bytes]:
        return _tree(self.output if way == "-o" else self.project)

    def undisturbed(self, way: str) -> tuple[float, float]:
        """Seconds that a run takes, and after which it begins to write."""
        watched = self.folder if way == "-o" else self.state
        for _ in range(2):  # the first writes bytecode
            self.reset()
            started = time.perf_counter()
            process = self.start(way)
            begins = 0.0
            while process.poll() is None:
                time.sleep(0.002)
                if not begins and any(watched.rglob("*.tmp")):
                    begins = time.perf_counter() - started
            whole = time.perf_counter() - started
            assert process.returncode == 0, process.communicate()
        self.wanted[way] = self.result(way)
        return whole, (begins or whole) * 0.9

    def killed(self, way: str, after: float) -> Counter[str]:
        self.reset()
        process = self.start(way)
        time.sleep(after)
        found = {"killed": process.poll() is None}
        process.kill()
        process.wait()
        now = _tree(self.project)
        new = self.wanted["in place"] if way == "in place" else self.before
        found["lost"] = any(now.get(n) not in (old, new[n]) for n, old in self.before.items())
        if way == "in place" or self.result(way) != self.wanted[way]:
            again = self.start(way)
            _, said = again.communicate()
            if again.returncode:
                found["refused"] = True
                print(said.decode(), file=sys.stderr)
            found["mixed"] = self.result(way) != self.wanted[way]
        left = [*self.folder.glob(".tpu-migrate-*"), *self.project.rglob(".tpu-migrate-*")]
        left += [*self.state.rglob("*.tmp"), *self.state.rglob("unfinished.zip")]
        found["stray"] = bool(left)
        if _group(process.pid):
            time.sleep(1)
            found["orphans"] = bool(_group(process.pid))
            for pid in _group(process.pid):
                os.kill(pid, signal.SIGKILL)
        return +Counter({kind: int(count) for kind, count in found.items()})


def _group(leader: int) -> list[int]:
    """What still runs of a session."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(int(folder.name))
    return found


if __name__ == "__main__":
    main()
