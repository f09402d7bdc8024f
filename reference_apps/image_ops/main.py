"""Image preparation on the GPU: crop, resize and blur a masked clip, and compare two resizers.

python main.py --input data --output out --repeat 5
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import crop_resize_blur
import resize_test
from timing import StepTimer


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", type=Path, default=Path("data"), help="clip, mask and photo")
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--repeat", type=int, default=5, help="runs; the first one is the warm-up")
    parser.add_argument(
        "--device",
        type=torch.device,
        default=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
    )
    parser.add_argument("--max-batch-mb", type=int, default=200, help="larger batches are chunked")
    parser.add_argument(
        "--thin",
        type=int,
        default=1,
        metavar="N",
        help="keep every N-th row and column of the images in the result file",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    """Seed NumPy, the CPU and every GPU."""
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def summarise(results: dict[str, torch.Tensor], step: int) -> dict[str, torch.Tensor]:
    """Thin the images and add mean and standard deviation of each whole one: float64 (2,)."""
    outputs: dict[str, torch.Tensor] = {}
    for name, value in results.items():
        if value.ndim >= 2:
            pixels = value.double()
            outputs[f"{name}.moments"] = torch.stack([pixels.mean(), pixels.std()])
            value = value[..., ::step, ::step]
        outputs[name] = value.contiguous()
    return outputs


def main() -> None:
    """Run both programs `--repeat` times; write outputs.safetensors and times.json."""
    args = parse_args()
    device: torch.device = args.device
    seed_everything(args.seed)
    # Fixed image sizes: let cuDNN pick its fastest convolution once. No TF32, the feathered mask
    # is compared between machines.
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False

    name = "CPU"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        torch.cuda.reset_peak_memory_stats()
    print(f"running on {name}")

    timer = StepTimer(device)
    results: dict[str, torch.Tensor] = {}
    for _ in range(args.repeat):
        results |= crop_resize_blur.run(args.input, device, timer, args.max_batch_mb * 1024 * 1024)
        results |= resize_test.run(args.input, timer)
        torch.cuda.empty_cache()

    args.output.mkdir(parents=True, exist_ok=True)
    save_file(summarise(results, args.thin), args.output / "outputs.safetensors")
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    timer.write(args.output / "times.json", device=name, repeat=args.repeat, peak_memory_bytes=peak)
    for step, times in timer.summary().items():
        print(f"{step:20s} first {times['first_s']:.4f} s, later {times['later_s']:.4f} s")


if __name__ == "__main__":
    main()
