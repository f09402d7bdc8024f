"""What TOK001 is worth: a GPT that joins its text, migrated with and without --unsafe.

    python benchmarks/token_buffer.py --target torchax [--new 4 16 64 256]

In the environment of the target, on its CPU back end: the GPT of the app `generate` continues three
prompts greedily, twice, in a process for each number of new tokens. Prints how many programs were
compiled, CPU seconds of the first text, and milliseconds of CPU for each token of the second. Both
texts must be the original's on the CPU. Without the buffer the time of the first text is that of
compiling for each length; `--timeout` seconds end it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "reference_apps" / "generate"

PROGRAM = """
import json, sys, time
import torch
import generate_gpt
{setup}
torch.manual_seed(0)
model = generate_gpt.GPT(block_size=320)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(2)
model.to("{device}").eval()
prompts = torch.randint(256, (3, 16)).to("{device}")
seconds = []
for _ in range(2):
    before = time.process_time()
    text = model.generate(prompts, {new}).cpu().tolist()
    seconds.append(time.process_time() - before)
print(json.dumps({{"text": text, "seconds": seconds, "programs": programs()}}))
"""

SETUP = {
    "cpu": "programs = lambda: 0",
    "torchax": """
import jax, tpu_runtime
tpu_runtime.setup()
found = []
def note(event, *_, **__):
    found.extend([event] * event.endswith("backend_compile_duration"))
jax.monitoring.register_event_duration_secs_listener(note)
programs = lambda: len(found)
""",
    "torch_xla": """
import tpu_runtime
tpu_runtime.setup()
from torch_xla.debug import metrics
programs = lambda: metrics.counter_value("UncachedCompile") or 0
""",
}
DEVICE = {"cpu": "cpu", "torchax": "jax", "torch_xla": "xla"}


def migrate(target: str, to: Path, *options: str, source: Path = APP) -> Path:
    command = [sys.executable, "-m", "migrator", str(source), "--target", target, "-o", str(to)]
    subprocess.run([*command, "--runtime", "copy", "-q", *options], check=True, cwd=ROOT)
    return to


def run(
    folder: Path, target: str, new: int, timeout: float, program: str = PROGRAM
) -> dict[str, Any] | None:
    """What the program says; None if it did not end in time."""
    text = program.format(setup=SETUP[target], device=DEVICE[target], new=new)
    around = {"JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU", "PYTHONPATH": str(folder)}
    try:
        ended = subprocess.run(
            [sys.executable, "-c", text], env=os.environ | around, cwd=folder, timeout=timeout,
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=[*SETUP][1:], required=True)
    parser.add_argument("--new", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--timeout", type=float, default=600.0)
    args = parser.parse_args()
    table = Table("new tokens", "edited", "programs", "first text, s", "then, ms a token", "text")
    for each in table.columns[2:5]:
        each.justify = "right"
    wrong = False
    with tempfile.TemporaryDirectory() as made:
        joined = migrate(args.target, Path(made) / "joined")
        buffer = migrate(args.target, Path(made) / "buffer", "--unsafe")
        for new in args.new:
            expected = run(APP, "cpu", new, args.timeout)
            assert expected is not None
            for name, folder in (("joined", joined), ("buffer", buffer)):
                found = run(folder, args.target, new, args.timeout)
                if found is None:
                    table.add_row(str(new), name, "", f"over {args.timeout:.0f}", "", "")
                    continue
                same = found["text"] == expected["text"]
                wrong |= not same
                first, second = found["seconds"]
                table.add_row(
                    str(new), name, str(found["programs"]), f"{first:.1f}",
                    f"{1000 * second / new:.1f}", "the same" if same else "[red]another",
                )  # fmt: skip
    Console().print(table)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
