"""All three stages one after the other, on synthetic weights: with and without DeepCache.

    python main.py --prompt "a boat on a lake" --output_dir out

Writes what the stages write, and record.safetensors with the results of all of them.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import make_weights
import stage1_encode
import stage2_denoise
import stage3_decode

# name: what stage 2 is told beside the common options
RUNS = {
    "full": ["--dtype", "float32"],
    "cached": ["--dtype", "float32", "--enable_cache"],
    "bfloat16": ["--dtype", "bfloat16"],
}


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", default="a small boat crosses a lake at dawn")
    parser.add_argument("--negative_prompt", default="blurred")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--output_dir", type=Path, default=Path("out"))
    parser.add_argument("--height", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--video_length", type=int, default=9)
    parser.add_argument("--num_inference_steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--cache_start_step", type=int, default=3)
    parser.add_argument("--cache_end_step", type=int, default=11)
    parser.add_argument("--cache_step_interval", type=int, default=4)
    return parser.parse_args()


def psnr(frames: torch.Tensor, reference: torch.Tensor) -> float:
    """Peak signal-to-noise ratio of 8-bit frames, in dB; infinite where they are equal."""
    error = (frames.double() - reference.double()).square().mean()
    return float(10 * torch.log10(255**2 / error))


def main() -> None:
    """Run the stages and collect their results."""
    args = parse_args()
    out, weights = args.output_dir, args.output_dir / "weights"
    make_weights.main(["--preset", args.preset, "--output", str(weights)])
    common = ["--weights", str(weights), "--output_dir"]
    prompts = ["--prompt", args.prompt, "--negative_prompt", args.negative_prompt]
    size = ["--height", str(args.height), "--width", str(args.width)]
    stage1_encode.main(["--preset", args.preset, *prompts, *size, *common, str(out)])

    record = {f"stage1.{k}": v for k, v in load_file(out / "stage1_embeddings.safetensors").items()}
    steps, figures = {}, {}
    options = ["video_length", "num_inference_steps", "seed"]
    options += ["cache_start_step", "cache_end_step", "cache_step_interval"]
    told = [part for name in options for part in (f"--{name}", str(getattr(args, name)))]
    for name, more in RUNS.items():
        folder = out / name
        stage2_denoise.main(["--input_dir", str(out), *told, *more, *common, str(folder)])
        shutil.copy(out / "generation_config.json", folder)
        stage3_decode.main(["--input_dir", str(folder), *common, str(folder)])
        record[f"{name}.latents"] = load_file(folder / "stage2_latents.safetensors")["latents"]
        record[f"{name}.frames"] = load_file(folder / "stage3_frames.safetensors")["frames"]
        table = json.loads((folder / "stage2_times.json").read_text())
        times = table["step_ms"]
        figures[f"{name}: steps run fully"] = table["full_steps"]
        figures[f"{name}: steps run cached"] = table["cached_steps"]
        later = sum(times[1:]) / len(times[1:]) / 1000
        steps[f"step, {name}"] = {"first_s": times[0] / 1000, "later_s": later}
    for name in ("cached", "bfloat16"):
        loss = psnr(record[f"{name}.frames"], record["full.frames"])
        most = float((record[f"{name}.latents"] - record["full.latents"]).abs().max())
        figures[f"{name} against full: PSNR of the frames, dB"] = round(loss, 2)
        figures[f"{name} against full: largest difference of the latents"] = round(most, 4)
        print(f"{name} against full: {loss:.1f} dB, latents differ by at most {most:.3g}")

    save_file(record, out / "record.safetensors")
    table = {"repeat": args.num_inference_steps, "steps": steps, "figures": figures}
    (out / "record.json").write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
