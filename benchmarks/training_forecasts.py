"""Forecasts of public training programs at their real size, and how long each takes.

    python benchmarks/training_forecasts.py [NAME ...] [--nanogpt FOLDER] [--chip v5p]; \\
        python docs/generate.py

Forecasts a training step of each program, and the longest of each app in reference_apps (all, or
those named), and writes the figures to training_forecasts.json, of which docs/forecast.md has
tables. Data are made up, steps are compiled and not computed. `--nanogpt`: a checkout of
github.com/karpathy/nanoGPT, whose train.py is run as it is; the others are in training_programs.
Runs in the target's Python, which has libtpu.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "training_forecasts.json"
CHIPS = ("v6e", "v5e", "v5p", "v7x")
HEADINGS = (
    "| a step of | parameters | with | HBM, GiB | FLOPs | bound, ms | binds | estimate, ms "
    "| forecast, s |"
)
MICRO = "--gradient_accumulation_steps=1 --eval_iters=1 --max_iters=3"


@dataclass(frozen=True)
class Program:
    """``parameters``: millions; ``samples``: of a step, in words."""

    name: str
    parameters: float
    samples: str
    arguments: tuple[str, ...]
    entry: str = "train.py"


def _model(name: str, title: str, parameters: float, batch: int, what: str) -> Program:
    return Program(title, parameters, f"{batch} {what}", (name, "--batch", str(batch)))


PROGRAMS = [
    Program("nanoGPT", 124.3, "12 × 1,024 tokens", tuple(MICRO.split())),
    _model("resnet50", "ResNet-50", 25.6, 64, "images of 224²"),
    _model("vit", "ViT-B/16", 86.6, 64, "images of 224²"),
    _model("unet", "U-Net", 31.0, 4, "images of 512²"),
    _model("llama", "Llama 3.2 1B, bfloat16", 1235.8, 1, "× 2,048 tokens"),
    _model("dit", "DiT-B/2", 129.1, 64, "latents of 32²"),
    _model("mae", "MAE, ViT-B/16", 111.9, 64, "images of 224²"),
    _model("bert", "BERT base", 109.5, 16, "× 512 tokens"),
    _model("video", "VideoMAE, ViT-B", 86.5, 4, "videos of 16 × 224²"),
    _model("gan", "DCGAN", 6.3, 128, "images of 64²"),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="how programs' names begin")
    parser.add_argument("--nanogpt", type=Path, metavar="FOLDER")
    parser.add_argument("--chip", default="v6e")
    args = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = []
    for program, folder in [*((each, _folder(each, args.nanogpt)) for each in PROGRAMS), *apps()]:
        if folder is None or not program.name.startswith(tuple(args.names or [""])):
            continue
        print(f"forecast of {program.name} for a {args.chip}", file=sys.stderr, flush=True)
        try:
            found[key(program, args.chip)] = figures(program, folder.absolute(), args.chip)
        except ValueError as error:
            failed.append(f"{program.name}: {error}")
            continue
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print("\n\n".join([training(), of_apps(), of_chips()]))
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


def key(program: Program, chip: str) -> str:
    return program.name if chip == "v6e" else f"{program.name} on {chip}"


def _folder(program: Program, nanogpt: Path | None) -> Path | None:
    return nanogpt if program.name == "nanoGPT" else HERE / "training_programs"


def apps() -> Iterator[tuple[Program, Path]]:
    """The apps of the checkout with the arguments of `verify`, and their folders."""
    for file in sorted((HERE.parent / "reference_apps").glob("*/app.toml")):
        app = tomllib.loads(file.read_text("utf-8"))
        program = Program(app["name"], 0.0, "", tuple(app["args"]), app["entry"])
        yield program, file.parent


def training() -> str:
    """The table of docs/forecast.md."""
    return "\n".join(table(json.loads(RESULTS.read_text())))


def of_apps() -> str:
    """Of the apps."""
    rows = [
        HEADINGS.replace("a step of | parameters | with", "app"),
        "|---|---|---|---|---|---|---|",
    ]
    found = json.loads(RESULTS.read_text())
    known = [(program, found[program.name]) for program, _ in apps() if program.name in found]
    rows += [_row([program.name], of) for program, of in known]
    return "\n".join(rows)


def of_chips() -> str:
    """The programs that were compiled for more than one chip: bound and estimate, in ms."""
    found = json.loads(RESULTS.read_text())
    rows = ["| ms, bound and estimate | " + " | ".join(f"{chip}-1" for chip in CHIPS) + " |",
            "|---" * (1 + len(CHIPS)) + "|"]  # fmt: skip
    for program in PROGRAMS:
        of = [found.get(key(program, chip)) for chip in CHIPS]
        if sum(each is not None for each in of) > 1:
            rows.append(f"| {program.name} | {' | '.join(map(_both, of))} |")
    return "\n".join(rows)


def _both(of: dict[str, Any] | None) -> str:
    if of is None:
        return ""
    estimate = "–" if of["estimate"] is None else f"{1e3 * of['estimate']:.3g}"
    return f"{1e3 * of['bound']:.3g}, {estimate}"


def figures(program: Program, folder: Path, chip: str) -> dict[str, Any]:
    """Of the training step with the largest bound; ``seconds``: of the forecast, by the clock.

    Raises ValueError: there is no forecast.
    """
    if program.name == "nanoGPT":
        _write_tokens(folder / "data" / "openwebtext")
    command = [sys.executable, "-m", "migrator", "forecast", program.entry, "--chip", chip,
               "--python", sys.executable, "--no-compute", "--format", "json", "--timeout", "1200",
               "--", *program.arguments]  # fmt: skip
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:  # nothing has been compiled before
        environment = {**os.environ, "TPU_MIGRATE_CACHE": cache}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    seconds = time.monotonic() - start
    try:
        answer = json.loads(done.stdout)
        steps = [step for step in answer["steps"] if not step["error"]]
        step = max(steps, key=lambda step: (step["kind"] == "train", step["bound"]))
    except (ValueError, KeyError):
        raise ValueError(f"{done.stdout[-2000:]}{done.stderr[-2000:]}") from None
    kept = ("hbm", "capacity", "fits", "memory", "flops", "bound", "binding", "estimate")
    return {
        **{name: step[name] for name in kept},
        "seconds": seconds,
        "programs": len(answer["steps"]),
        "problems": answer["problems"],
    }


def _write_tokens(folder: Path) -> None:
    """Tokens of GPT-2, made up."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for name in ("train.bin", "val.bin"):
        (folder / name).write_bytes(
            array("H", (draw.randrange(50257) for _ in range(8192))).tobytes()
        )


def table(found: dict[str, Any]) -> Iterator[str]:
    """Markdown."""
    yield HEADINGS
    yield "|---" * 9 + "|"
    for program in PROGRAMS:
        if program.name in found:
            first = [program.name, f"{program.parameters:,.1f} M", program.samples]
            yield _row(first, found[program.name])


def _row(first: list[str], of: dict[str, Any]) -> str:
    fits = "" if of["fits"] else ", too much"
    cells = [
        *first, f"{of['hbm'] / 2**30:.3g}{fits}", _count(of["flops"]),
        f"{1e3 * of['bound']:.3g}", of["binding"],
        "–" if of["estimate"] is None else f"{1e3 * of['estimate']:.3g}", f"{of['seconds']:.0f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _count(flops: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops:.3g}"


if __name__ == "__main__":
    sys.exit(main())
