"""Draw the sums of data/train.jsonl and data/eval.jsonl, always the same.

python make_data.py
"""

import json
import random
from pathlib import Path

FILES = {"train": 96, "eval": 24}


def main() -> None:
    """Write prompts with their completions, one in a line."""
    draw = random.Random(0)
    for name, count in FILES.items():
        lines = []
        for _ in range(count):
            a, b = draw.randrange(100), draw.randrange(100)
            lines.append(json.dumps({"prompt": f"{a} plus {b} is", "completion": f" {a + b}."}))
        path = Path(__file__).parent / "data" / f"{name}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
