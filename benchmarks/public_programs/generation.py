"""Public programs that generate text, unedited, with tiny random weights: the same tokens?

    python benchmarks/public_programs/generation.py CHECKOUTS --target torchax [--only NAME]
                                                    [--new 24] [--timeout SECONDS]

In the environment of the target with the group `trainers`, and tiktoken for Whisper, on its CPU
back end. CHECKOUTS has a folder for each repository; a program whose file is not there is left out.
`files/generation` has what gives each a tiny model and a prompt, and stand-ins for what is imported
and not used. Prints a row for each program, and another with --unsafe where that edits how text is
made: how many programs the first text compiled, and the next three; CPU seconds of the first text,
and milliseconds of CPU for each token of the last; whether the tokens are those of the original on
the CPU; and the verdict of `tpu-migrate verify --quick`, with the values that it compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
TOKENS = "TOK001,TOK002,TOK003,TOK004"  # the rules of text that is made token by token
STAND_INS = HERE / "files/generation/stand_ins"
sys.path.insert(0, str(HERE.parent))
from own_cache import on_cpu  # noqa: E402
from token_buffer import ROOT, SETUP, migrate, run  # noqa: E402


class Program(NamedTuple):
    name: str
    files: dict[str, str]  # or folders of all checkouts, and what they are called beside `start`
    start: str  # of files/generation
    stand_ins: tuple[str, ...] = ()  # of files/generation/stand_ins, for what is imported only


def chapter(file: str, *others: str, stand_ins: tuple[str, ...] = ("tiktoken",)) -> Program:
    """A chapter of LLMs-from-scratch, with other files of its folder that it imports."""
    folder, _, name = file.rpartition("/")
    files = {f"{folder}/{other}": other for other in others}
    named = f"LLMs-from-scratch `{name}`"
    return Program(named, {file: "chapter.py", **files}, "llms_from_scratch.py", stand_ins)


_CHAPTERS = "LLMs-from-scratch"
_PACKAGE = f"{_CHAPTERS}/pkg/llms_from_scratch"
_OF_PACKAGE = (
    "__init__", "generate", "llama3",
    *(f"kv_cache/{name}" for name in ("__init__", "generate", "llama3", "utils")),
)  # fmt: skip
PROGRAMS = [
    Program(
        "nanoGPT `sample.py`",
        {f"nanoGPT/{name}": name for name in ("sample.py", "model.py", "configurator.py")},
        "nanogpt.py", ("tiktoken",),
    ),
    Program("minGPT `generate`", {"minGPT/mingpt": "mingpt"}, "mingpt.py"),
    chapter(f"{_CHAPTERS}/ch04/01_main-chapter-code/gpt.py"),
    chapter(
        f"{_CHAPTERS}/ch05/01_main-chapter-code/gpt_generate.py", "previous_chapters.py",
        stand_ins=("requests", "tensorflow", "tiktoken"),
    ),
    chapter(f"{_CHAPTERS}/ch04/03_kv-cache/gpt_with_kv_cache.py"),
    chapter(f"{_CHAPTERS}/ch04/03_kv-cache/gpt_with_kv_cache_optimized.py"),
    chapter(f"{_CHAPTERS}/ch04/04_gqa/gpt_with_kv_gqa.py"),
    chapter(f"{_CHAPTERS}/ch04/05_mla/gpt_with_kv_mla.py"),
    chapter(f"{_CHAPTERS}/ch04/06_swa/gpt_with_kv_swa.py"),
    chapter(f"{_CHAPTERS}/ch04/07_moe/gpt_with_kv_moe.py"),
    Program(
        "LLMs-from-scratch `kv_cache/llama3.py`",
        {f"{_PACKAGE}/{name}.py": f"llms_from_scratch/{name}.py" for name in _OF_PACKAGE},
        "llama3.py",
    ),
    Program(
        "gpt-fast `generate.py`",
        {f"gpt-fast/{name}": name for name in ("generate.py", "model.py", "tokenizer.py")},
        "gpt_fast.py", ("sentencepiece", "tiktoken"),
    ),
    Program(
        "Llama 2 `generation.py`", {"llama/llama": "llama"}, "llama.py",
        ("fairscale", "sentencepiece"),
    ),
    Program("bark `model.py`", {"bark/bark/model.py": "model.py"}, "bark.py"),
    Program("gpt-2-Pytorch `sample.py`", {"gpt-2-Pytorch/GPT2": "GPT2"}, "gpt2_pytorch.py"),
    Program("Whisper `decoding.py`", {"whisper/whisper": "whisper"}, "whisper.py", ("numba",)),
    Program(
        "transformers `run_generation.py`",
        {"transformers/examples/pytorch/text-generation/run_generation.py": "run_generation.py"},
        "run_generation.py",
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
    texts.append(start.text())
    seconds.append(time.process_time() - before)
    counts.append(programs())
print(json.dumps({{"texts": texts, "seconds": seconds, "programs": counts}}))
"""


def lay(program: Program, checkouts: Path, folder: Path) -> Path:
    """A folder with the program, and what starts it."""
    ours = HERE / "files/generation"
    beside = {ours / program.start: "start.py"}
    beside |= {path: path.name for name in program.stand_ins for path in STAND_INS.glob(f"{name}*")}
    for source, name in {**{checkouts / f: n for f, n in program.files.items()}, **beside}.items():
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, to)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.py")}


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


def texts_of(folder: Path, target: str, asked: argparse.Namespace) -> dict[str, Any] | str:
    """What the program says, or why it says nothing."""
    try:
        said = run(folder, target, asked.new, asked.timeout, TEXTS)
    except subprocess.CalledProcessError as error:
        return f"ends with exit code {error.returncode}"
    return said or f"over {asked.timeout:.0f} s"


def row(original: Path, migrated: Path, expected: object, asked: argparse.Namespace) -> str:
    """What one migration of a program does, as cells."""
    options = ["--unsafe"] if migrated.name == "unsafe" else []
    verdict = verified(original, asked.target, options, asked.new)
    found = texts_of(migrated, asked.target, asked)
    if isinstance(found, str):
        return f"| | {found} | | | {verdict}"
    first, *_, last = found["seconds"]
    begun, once, *_, ended = found["programs"]
    same = "the same" if found["texts"] == expected else "OTHERS"
    return (
        f"{once - begun} | {ended - once} | {first:.1f} s | {1000 * last / asked.new:.1f} ms | "
        f"{same} | {verdict}"
    )


def rows(program: Program, made: Path, asked: argparse.Namespace) -> Iterator[str]:
    """Rows of a program; one where --unsafe edits nothing more."""
    original = lay(program, asked.checkouts, made / "original")
    cpu = shutil.copytree(original, made / "cpu")
    for path in cpu.rglob("*.py"):
        path.write_text(on_cpu(path.read_text()))
    said = texts_of(cpu, "cpu", asked)
    expected = said if isinstance(said, str) else said["texts"]
    ways = {"plain": [], "unsafe": ["--unsafe"], "tokens": ["--unsafe", "--select", TOKENS]}
    plain, unsafe, tokens = (
        migrate(asked.target, made / name, *options, source=original)
        for name, options in ways.items()
    )
    yield f"{program.name} | {row(original, plain, expected, asked)}"
    if files_of(tokens) != files_of(original):
        yield f"{program.name}, `--unsafe` | {row(original, unsafe, expected, asked)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--target", choices=[*SETUP][1:], required=True)
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--new", type=int, default=24)
    parser.add_argument("--timeout", type=float, default=600.0)
    asked = parser.parse_args()
    print(f"| {asked.target} | programs of the first text | of the next three | first text", end="")
    print(" | then, a token | tokens | `verify` |\n|" + "---|" * 7)
    for program in PROGRAMS:
        there = all((asked.checkouts / file).exists() for file in program.files)
        if asked.only in program.name and there:
            with tempfile.TemporaryDirectory() as made:
                for cells in rows(program, Path(made), asked):
                    print(f"| {cells} |", flush=True)


if __name__ == "__main__":
    main()
