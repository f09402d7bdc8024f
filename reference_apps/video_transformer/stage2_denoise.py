"""Stage 2: denoise video latents with the transformer.

    python stage2_denoise.py --input_dir out --output_dir out --video_length 49
    torchrun --nproc_per_node 8 stage2_denoise.py --input_dir out --sequence_parallel

Reads what stage 1 wrote; writes stage2_latents.safetensors and stage2_times.json.
"""

import argparse
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
from tqdm import tqdm

import sequence_parallel
from files import reading, write
from rotary import rotary_tables
from scheduler import FlowMatchEuler
from transformer import PRESETS, TransformerConfig, VideoTransformer

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
VAE_TIME, VAE_SPACE = 4, 8  # how many frames and pixels a latent stands for


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_dir", type=Path, default=Path("out"))
    parser.add_argument("--output_dir", type=Path, default=Path("out"))
    parser.add_argument("--weights", type=Path, default=Path("weights"))
    parser.add_argument("--video_length", type=int, default=49, help="frames, 4 n + 1: 49 or 121")
    parser.add_argument("--num_inference_steps", type=int, default=50)
    parser.add_argument("--guidance_scale", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--warmup_steps", type=int, default=2, help="of each kind of step")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--enable_cache", action="store_true", help="DeepCache")
    parser.add_argument("--cache_start_step", type=int, default=11)
    parser.add_argument("--cache_end_step", type=int, default=45)
    parser.add_argument("--cache_step_interval", type=int, default=4)
    parser.add_argument("--enable_profiler", action="store_true")
    parser.add_argument("--profiler_output_dir", type=Path, default=Path("profile"))
    parser.add_argument("--sequence_parallel", action="store_true", help="under torchrun")
    args = parser.parse_args(argv)
    if args.video_length % VAE_TIME != 1:
        parser.error(f"--video_length {args.video_length}: has to be a multiple of 4, plus 1")
    return args


def load_transformer(config: TransformerConfig, path: Path, args: argparse.Namespace) -> Any:
    """The model on the GPU, compiled if asked for."""
    with torch.device("meta"):
        model = VideoTransformer(config)
    with reading(path, "make_weights.py"):
        model.load_state_dict(load_file(path), assign=True)
        model = model.to(DTYPES[args.dtype]).cuda().eval().requires_grad_(False)
    return torch.compile(model) if args.compile else model


def load_conditions(path: Path, args: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Text and vision embeddings of the negative and the positive prompt, as a batch of two."""
    dtype = DTYPES[args.dtype]
    with reading(path, "stage1_encode.py"):
        stored = {k: v.cuda() for k, v in load_file(path).items()}
        text = torch.cat([stored["negative"], stored["text"]])
        mask = torch.cat([stored["negative_mask"], stored["text_mask"]])
        vision = torch.cat([stored["vision"]] * 2)
    text = text / text[mask].float().pow(2).mean().sqrt()  # of the tokens that count
    return {
        "text": text.to(dtype),
        "text_mask": mask,
        "vision": vision.to(dtype),
        "guidance": torch.full((2,), args.guidance_scale * 1000, device="cuda"),
    }


def runs_cached(step: int, args: argparse.Namespace) -> bool:
    """Whether ``step`` uses the blocks' results of the last full step."""
    if step < 0:  # a warm-up: the second half of it where there is a cache
        return args.enable_cache and step >= -args.warmup_steps
    if not args.enable_cache or not args.cache_start_step <= step < args.cache_end_step:
        return False
    return (step - args.cache_start_step) % args.cache_step_interval != 0


@torch.inference_mode()
def denoise(
    model: Any,
    latents: torch.Tensor,
    conditions: dict[str, torch.Tensor],
    rope: tuple[torch.Tensor, torch.Tensor],
    args: argparse.Namespace,
    steps: range,
    profiler: Any = None,
) -> tuple[torch.Tensor, list[float], int]:
    """The latents after ``steps``, milliseconds of each, and how many ran cached.

    Steps below 0 are a warm-up.
    """
    scheduler = FlowMatchEuler(args.num_inference_steps)
    cached, times, hits = None, [], 0
    for i in tqdm(steps, desc="denoising", disable=steps.start < 0):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        index = max(i, 0)
        t = scheduler.timesteps[index].repeat(2).cuda()
        use_cache = runs_cached(i, args)
        hits += use_cache
        with torch.cuda.amp.autocast(dtype=torch.bfloat16, enabled=args.dtype == "bfloat16"):
            velocity, cached = model(
                torch.cat([latents] * 2).to(DTYPES[args.dtype]),
                t,
                **conditions,
                rope=rope,
                cached=cached if use_cache else None,
            )
        negative, positive = velocity.float().chunk(2)
        guided = negative + args.guidance_scale * (positive - negative)
        latents = scheduler.step(guided, index, latents)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
        if profiler is not None:
            profiler.step()
    return latents, times, hits


def main(argv: list[str] | None = None) -> None:
    """Denoise, and write the latents and the times."""
    args = parse_args(argv)
    rank = sequence_parallel.start() if args.sequence_parallel else 0
    path = args.input_dir / "generation_config.json"
    with reading(path, "stage1_encode.py"):
        settings = json.loads(path.read_text())
        config = PRESETS[settings["preset"]]

    path = args.input_dir / "stage1_embeddings.safetensors"
    conditions = load_conditions(path, args)
    model = load_transformer(config, args.weights / "transformer.safetensors", args)
    frames = (args.video_length - 1) // VAE_TIME + 1
    size = (frames, settings["height"] // VAE_SPACE, settings["width"] // VAE_SPACE)
    grid = tuple(n // p for n, p in zip(size, config.patch, strict=True))
    rope = rotary_tables(grid, config.rope_dims, torch.device("cuda"))
    # Drawn on the CPU: every device has the same noise.
    generator = torch.Generator().manual_seed(args.seed)
    noise = torch.randn(1, config.latent_channels, *size, generator=generator).to("cuda")

    if args.warmup_steps:
        steps = args.warmup_steps * (2 if args.enable_cache else 1)
        denoise(model, noise, conditions, rope, args, range(-steps, 0))
    torch.cuda.reset_peak_memory_stats()
    tracing: Any = nullcontext()
    if args.enable_profiler:
        tracing = profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            on_trace_ready=tensorboard_trace_handler(str(args.profiler_output_dir)),
        )
    with tracing as profiler:
        latents, times, hits = denoise(
            model, noise, conditions, rope, args, range(args.num_inference_steps), profiler
        )

    if rank == 0:
        write({"latents": latents.cpu()}, args.output_dir / "stage2_latents.safetensors")
        table = {"step_ms": times, "cached_steps": hits, "full_steps": len(times) - hits}
        (args.output_dir / "stage2_times.json").write_text(json.dumps(table) + "\n")
        seconds, peak = sum(times) / 1000, torch.cuda.max_memory_allocated() / 2**30
        print(f"{len(times)} steps, {hits} of them cached, {seconds:.2f} s, {peak:.2f} GiB")


if __name__ == "__main__":
    main()
