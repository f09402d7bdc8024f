"""Public programs that generate text, unedited, with tiny random weights: the same tokens?

    python benchmarks/public_programs/generation.py CHECKOUTS --target torchax [--only NAME]
                                                    [--new 24] [--timeout SECONDS]

In the environment of the target, on its CPU back end. CHECKOUTS has a folder for each repository; a
program whose file is not there is left out. `files/generation` has what gives each a tiny model and
a prompt. Prints a row for each program, migrated without and with --unsafe: how many programs the
first text compiled, and the next three; CPU seconds of the first text, and milliseconds of CPU for
each token of the last; whether the tokens are those of the original on the CPU; and the verdict of
`tpu-migrate verify --quick`, with the values that it compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from own_cache import on_cpu  # noqa: E402
from token_buffer import ROOT, SETUP, migrate, run  # noqa: E402


class Program(NamedTuple):
    name: str
    files: dict[str, str]  # in the folder of all checkouts, and what they are called beside
    start: str  # of files/generation
    empty: tuple[str, ...] = ()  # modules that are imported, and not used


_CHAPTER = "LLMs-from-scratch/ch04"
_TOKENS = ("tiktoken",)
PROGRAMS = [
    Program(
        "LLMs-from-scratch `gpt_with_kv_cache.py`",
        {f"{_CHAPTER}/03_kv-cache/gpt_with_kv_cache.py": "chapter.py"},
        "llms_from_scratch.py", _TOKENS,
    ),
    Program(
        "LLMs-from-scratch `gpt_with_kv_cache_optimized.py`",
        {f"{_CHAPTER}/03_kv-cache/gpt_with_kv_cache_optimized.py": "chapter.py"},
        "llms_from_scratch.py", _TOKENS,
    ),
    Program(
        "LLMs-from-scratch `gpt_with_kv_gqa.py`",
        {f"{_CHAPTER}/04_gqa/gpt_with_kv_gqa.py": "chapter.py"},
        "llms_from_scratch.py", _TOKENS,
    ),
    Program(
        "gpt-fast `generate.py`",
        {f"gpt-fast/{name}": name for name in ("generate.py", "model.py", "tokenizer.py")},
        "gpt_fast.py", ("sentencepiece", "tiktoken", "tiktoken/load"),
    ),
]  # fmt: skip

TEXTS = """
import json, sys, time
sys.argv = ["start.py", "{new}"]
{setup}
import start
seconds, counts, texts = [], [programs()], []
for _ in range(4):
    before = time.process_time()
    texts.append(start.text().cpu().tolist())
    seconds.append(time.process_time() - before)
    counts.append(programs())
print(json.dumps({{"texts": texts, "seconds": seconds, "programs": counts}}))
"""


def lay(program: Program, checkouts: Path, folder: Path) -> Path:
    """A folder with the program, and what starts it."""
    folder.mkdir(parents=True)
    for file, name in program.files.items():
        shutil.copy(checkouts / file, folder / name)
    shutil.copy(HERE / "files/generation" / program.start, folder / "start.py")
    for module in program.empty:
        inside = [other for other in program.empty if other.startswith(f"{module}/")]
        path = folder / (f"{module}/__init__.py" if inside else f"{module}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text("load_tiktoken_bpe = None\n" if module == "tiktoken/load" else "")
    return folder


def verified(folder: Path, target: str, options: list[str], new: int) -> str:
    """The verdict, and how many values agree."""
    asked = [sys.executable, "-m", "migrator", "verify", "start.py", "--quick", "--json"]
    asked += ["--target", target, "--python", sys.executable, "--timeout", "1500"]
    asked += [*options, "--", str(new)]
    done = subprocess.run(
        asked, cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    if not done.stdout.startswith("{"):
        return done.stderr.strip().splitlines()[-1]
    found = json.loads(done.stdout)
    if found["error"]:
        return str(found["error"])
    parts = [found["stepwise"], found["compiled"]]
    compared = sum(f["elements"] > 0 for part in parts for f in part["findings"])
    return f"{'PASS' if found['passed'] else 'FAIL'}, {compared}"


def row(
    made: Path, target: str, options: list[str], new: int, timeout: float, expected: object
) -> str:
    """What one migration of a program does, as cells."""
    shutil.rmtree(made / "migrated", ignore_errors=True)
    folder = migrate(target, made / "migrated", *options, source=made / "original")
    verdict = verified(made / "original", target, options, new)
    found = run(folder, target, new, timeout, TEXTS)
    if found is None:
        return f"| | over {timeout:.0f} s | | | {verdict}"
    first, *_, last = found["seconds"]
    begun, once, *_, ended = found["programs"]
    same = "the same" if found["texts"] == expected else "OTHERS"
    return (
        f"{once - begun} | {ended - once} | {first:.1f} s | {1000 * last / new:.1f} ms | {same} | "
        f"{verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--target", choices=[*SETUP][1:], required=True)
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--new", type=int, default=24)
    parser.add_argument("--timeout", type=float, default=600.0)
    asked = parser.parse_args()
    for program in PROGRAMS:
        there = all((asked.checkouts / file).exists() for file in program.files)
        if asked.only not in program.name or not there:
            continue
        with tempfile.TemporaryDirectory() as work:
            made = Path(work)
            original = lay(program, asked.checkouts, made / "original")
            cpu = shutil.copytree(original, made / "cpu")
            (cpu / "start.py").write_text(on_cpu((cpu / "start.py").read_text()))
            expected = run(cpu, "cpu", asked.new, asked.timeout, TEXTS)
            assert expected is not None
            for options in ([], ["--unsafe"]):
                cells = row(
                    made, asked.target, options, asked.new, asked.timeout, expected["texts"]
                )
                named = program.name + " --unsafe" * bool(options)
                print(f"| {asked.target} | {named} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
