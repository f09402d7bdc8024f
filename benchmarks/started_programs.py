"""Public programs that are called 100 % automatic, drawn with a seed, to be started on small data.

    python benchmarks/started_programs.py CHECKOUTS --target torchax [--draw 60] [--seed 68]

CHECKOUTS is a folder of repositories. In an order that the seed gives, a program of each is
printed that `tpu-migrate PROGRAM --check` calls 100 % automatic; then a second one of each. A
program is a file that does something when it is started, and that gets a set-up of the device.
Nothing is written. What became of two draws, of which one is of the repositories of
benchmarks/fresh_repositories.txt, and of programs of benchmarks/research_repositories.txt,
is in benchmarks/started_programs.json.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SET_UP = "SET001"  # a program that uses the device gets a set-up
FEWEST = 2  # GPU constructs
ROUNDS = 2  # the most programs of one repository
TRIES = 8  # of one repository, in each round
LARGEST = 300  # files of a repository
NO_PROGRAMS = ("test", "setup", "conftest", "__init__", "__main__")


def starts_something(path: Path) -> bool:
    """Whether a file has a main block or a loop outside of its functions, and names torch."""
    try:
        text = path.read_text()
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(text).body
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return False
    main = any(isinstance(each, ast.If) and "__main__" in ast.dump(each.test) for each in body)
    loops = any(isinstance(each, (ast.For, ast.While, ast.With)) for each in body)
    return (main or loops) and "torch" in text


def programs(repository: Path) -> list[Path]:
    """The programs of a repository; none of a large one, a framework's."""
    files = sorted(each for each in repository.glob("**/*.py") if each.is_file())
    own = [path for path in files if not _is_apart(path.relative_to(repository))]
    return [path for path in own if starts_something(path)] if len(files) <= LARGEST else []


def _is_apart(path: Path) -> bool:
    return any(part.startswith(NO_PROGRAMS) for part in path.parts)


def constructs_if_automatic(program: Path, repository: Path, target: str) -> int:
    """The number of GPU constructs of a program that is called 100 % automatic; 0 for others."""
    command = [sys.executable, "-m", "migrator", str(program.relative_to(repository)), "--check"]
    ran = subprocess.run(
        [*command, "--format", "json", "--target", target], capture_output=True, text=True,
        cwd=repository, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said = json.loads(ran.stdout or "{}")
    if not said or said["errors"] or said["staying"]:
        return 0
    summary = said["summary"]
    codes = {each["code"] for file in said["files"] for each in file["diagnostics"]}
    return (
        0
        if summary["reported"] or summary["incomplete"] or SET_UP not in codes
        else summary["constructs"]
    )


def draw(checkouts: Path, target: str, seed: int) -> Iterator[tuple[str, int]]:
    """Programs that are called 100 % automatic: one of each repository, then a second one."""
    order = random.Random(seed)
    repositories = sorted(each for each in checkouts.resolve().iterdir() if each.is_dir())
    order.shuffle(repositories)
    left = {repository: programs(repository) for repository in repositories}
    for found in left.values():
        order.shuffle(found)
    for _ in range(ROUNDS):
        for repository, found in left.items():
            for _ in range(min(TRIES, len(found))):
                program = found.pop()
                constructs = constructs_if_automatic(program, repository, target)
                if constructs >= FEWEST:
                    yield str(program.relative_to(checkouts.resolve())), constructs
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--target", default="torchax")
    parser.add_argument("--draw", type=int, default=60)
    parser.add_argument("--seed", type=int, default=68)
    asked = parser.parse_args()
    for _, (program, constructs) in zip(
        range(asked.draw), draw(asked.checkouts, asked.target, asked.seed), strict=False
    ):
        print(f"{program} {constructs}", flush=True)


if __name__ == "__main__":
    main()
