"""What TOK002 is worth: a llama with a cache of its own, migrated with and without --unsafe.

    python benchmarks/own_cache.py --target torchax [--new 8 32 64]

In the environment of the target, on its CPU back end: the llama of the app `generate` continues
three prompts four times, in a process for each number of new tokens. Prints how many programs the
first text compiled, and the others; CPU seconds of the first text, and milliseconds of CPU for each
token of the last. All texts must be those of the original on the CPU. `--timeout` seconds end a
process.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from token_buffer import APP, SETUP, migrate, run

PROGRAM = """
import json, sys, time
import torch
import generate_llama
{setup}
prompts = torch.randint(256, (3, 16), generator=torch.Generator().manual_seed(0))
torch.manual_seed(0)
model = generate_llama.Llama(3, 16 + {new})
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(2)
model.to("{device}").eval()
drawn = torch.rand(16 + {new}, 3, 1).to("{device}")
seconds, counts, texts = [], [programs()], []
for _ in range(4):
    before = time.process_time()
    texts.append(generate_llama.generate(model, prompts, drawn)[0].cpu().tolist())
    seconds.append(time.process_time() - before)
    counts.append(programs())
print(json.dumps({{"texts": texts, "seconds": seconds, "programs": counts}}))
"""


def on_cpu(source: str) -> str:
    return source.replace(".cuda()", "").replace('"cuda"', '"cpu"')


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=[*SETUP][1:], required=True)
    parser.add_argument("--new", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--timeout", type=float, default=900.0)
    args = parser.parse_args()
    table = Table(
        "new tokens", "", "programs", "later", "first text, s", "then, ms a token", "text"
    )
    for each in table.columns[2:6]:
        each.justify = "right"
    wrong = False
    with tempfile.TemporaryDirectory() as made:
        made_of: dict[str, tuple[str, ...]] = {"as written": (), "edited": ("--unsafe",)}
        for name, options in made_of.items():
            migrate(args.target, Path(made) / name, *options)
        shutil.copytree(APP, Path(made) / "CPU")
        path = Path(made) / "CPU" / "generate_llama.py"
        path.write_text(on_cpu(path.read_text("utf-8")), "utf-8")
        for new in args.new:
            expected = run(Path(made) / "CPU", "cpu", new, args.timeout, PROGRAM)
            assert expected is not None
            for name in made_of:
                found = run(Path(made) / name, args.target, new, args.timeout, PROGRAM)
                if found is None:
                    table.add_row(str(new), name, "", "", f"over {args.timeout:.0f}", "", "")
                    continue
                same = found["texts"] == expected["texts"]
                wrong |= not same
                seconds, counts = found["seconds"], found["programs"]
                table.add_row(
                    str(new), name, str(counts[1] - counts[0]), str(counts[-1] - counts[1]),
                    f"{seconds[0]:.1f}", f"{1000 * seconds[-1] / new:.1f}",
                    "the same" if same else "[red]another",
                )  # fmt: skip
    Console().print(table)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
