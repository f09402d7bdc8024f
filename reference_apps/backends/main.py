"""Text embeddings on whatever device there is, in the words of each.

python main.py --texts data/texts.txt --output out --repeat 3
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

import encode_cuda
import encode_mps
import encode_vulkan
import encode_xpu
from devices import get_best_device, get_optimal_batch_size, print_device_info
from engine import Engine


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=Path, default=Path("data/texts.txt"), help="one in a line")
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3, help="runs; the first one is the warm-up")
    return parser.parse_args()


def main() -> None:
    """Encode by the engine and in the words of each device; write outputs and times."""
    args = parse_args()
    device = get_best_device()
    print_device_info(device)
    print(f"optimal batch size: {get_optimal_batch_size(device, bytes_per_text=2**20)}")

    ways: dict[str, Callable[[list[str], int], torch.Tensor]] = {"engine": Engine(device).encode}
    for way in (encode_cuda, encode_xpu, encode_mps, encode_vulkan):
        if way.is_available():
            ways[way.__name__] = way.encode

    texts = args.texts.read_text(encoding="utf-8").splitlines()
    times: dict[str, list[float]] = defaultdict(list)
    outputs: dict[str, torch.Tensor] = {}
    for _ in range(args.repeat):
        for name, encode in ways.items():
            began = time.perf_counter()
            embeddings = encode(texts, args.batch_size)
            times[name].append(time.perf_counter() - began)
            outputs[f"{name}.embeddings"] = embeddings
            outputs[f"{name}.similarity"] = embeddings @ embeddings.T

    args.output.mkdir(parents=True, exist_ok=True)
    save_file(outputs, args.output / "outputs.safetensors")
    steps = {
        name: {"first_s": runs[0], "later_s": sum(runs[1:] or runs) / len(runs[1:] or runs)}
        for name, runs in times.items()
    }
    report = {"repeat": args.repeat, "steps": steps}
    (args.output / "times.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
