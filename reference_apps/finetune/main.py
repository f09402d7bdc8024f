"""Fine-tune a small language model in three programs, as people write them for a GPU.

python main.py --data data --output out --epochs 2
"""

import json

from safetensors.torch import save_file

import finetune_lightning
import finetune_lora
import finetune_trainer
from options import parse_args


def main() -> None:
    """Run the three; write outputs.safetensors and times.json."""
    options = parse_args()
    programs = (finetune_lora, finetune_trainer, finetune_lightning)
    records = [program.run(options) for program in programs]
    for record in records:
        record.show()

    outputs = {name: value for record in records for name, value in record.tensors().items()}
    options.output.mkdir(parents=True, exist_ok=True)
    save_file(outputs, options.output / "outputs.safetensors")
    report = {
        "repeat": max(len(record.seconds) for record in records),
        "steps": {record.name: record.times() for record in records},
    }
    (options.output / "times.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
