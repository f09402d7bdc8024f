"""Forecasts of public training programs at their real size, and how long each takes.

    python benchmarks/training_forecasts.py [NAME ...] [--nanogpt FOLDER]; python docs/generate.py

Forecasts a training step of each program (all, or those named) and writes the figures to
training_forecasts.json, of which docs/forecast.md has a table. Data are made up, steps are compiled
and not computed. `--nanogpt`: a checkout of github.com/karpathy/nanoGPT, whose train.py is run as
it is; the others are in training_programs. Runs in the target's Python, which has libtpu.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "training_forecasts.json"
MICRO = "--gradient_accumulation_steps=1 --eval_iters=1 --max_iters=3"


@dataclass(frozen=True)
class Program:
    """``parameters``: millions; ``samples``: of a step, in words."""

    name: str
    parameters: float
    samples: str
    arguments: tuple[str, ...]


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
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of programs' names")
    parser.add_argument("--nanogpt", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for program in PROGRAMS:
        wanted = not args.names or any(name in program.name for name in args.names)
        folder = args.nanogpt if program.name == "nanoGPT" else HERE / "training_programs"
        if wanted and folder is not None:
            print(f"forecast of {program.name}", file=sys.stderr, flush=True)
            found[program.name] = figures(program, folder.absolute())
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(training())
    return 0


def training() -> str:
    """The table of docs/forecast.md."""
    return "\n".join(table(json.loads(RESULTS.read_text())))


def figures(program: Program, folder: Path) -> dict[str, Any]:
    """Of the training step with the largest bound; ``seconds``: of the forecast, by the clock."""
    if program.name == "nanoGPT":
        _write_tokens(folder / "data" / "openwebtext")
    command = [sys.executable, "-m", "migrator", "forecast", "train.py", "--python", sys.executable,
               "--no-compute", "--format", "json", "--timeout", "1200", "--",
               *program.arguments]  # fmt: skip
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - start
    try:
        answer = json.loads(done.stdout)
        steps = [step for step in answer["steps"] if not step["error"]]
        step = max(steps, key=lambda step: (step["kind"] == "train", step["bound"]))
    except (ValueError, KeyError):
        raise SystemExit(f"{program.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}") from None
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
    yield (
        "| a step of | parameters | with | HBM, GiB | FLOPs | bound, ms | binds | estimate, ms "
        "| forecast, s |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for program in PROGRAMS:
        if program.name in found:
            yield _row(program, found[program.name])


def _row(program: Program, of: dict[str, Any]) -> str:
    fits = "" if of["fits"] else ", too much"
    cells = [
        program.name, f"{program.parameters:,.1f} M", program.samples,
        f"{of['hbm'] / 2**30:.1f}{fits}",
        f"{of['flops'] / 1e12:.3g} T", f"{1e3 * of['bound']:.3g}", of["binding"],
        "–" if of["estimate"] is None else f"{1e3 * of['estimate']:.3g}", f"{of['seconds']:.0f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
