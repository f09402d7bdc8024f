"""Make text with three small language models, as people write it for a GPU.

python main.py --output out --new 12
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import generate_gpt
import generate_llama
import generate_transformers
from record import Record

PROMPTS = ["The TPU compiles", "One program for ", "A cache of keys "]


def main() -> None:
    """Run the three; write outputs.safetensors and times.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--new", type=int, default=12, help="tokens to make")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    records = []
    for program in (generate_gpt, generate_llama, generate_transformers):
        torch.manual_seed(args.seed)
        record = Record(program.NAME)
        program.run(PROMPTS, args.new, args.repeat, record)
        record.show()
        records.append(record)

    args.output.mkdir(parents=True, exist_ok=True)
    outputs = {name: value for record in records for name, value in record.tensors().items()}
    save_file(outputs, args.output / "outputs.safetensors")
    steps = {record.name: record.times() for record in records}
    report = {"repeat": args.repeat, "steps": steps}
    (args.output / "times.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
