"""Stage 3: decode latents to frames.

    python stage3_decode.py --input_dir out --output_dir out --format mp4

Reads what stages 1 and 2 wrote; writes stage3_frames.safetensors (uint8, T × H × W × 3) and
video.mp4, or a PNG for each frame.
"""

import argparse
import json
from pathlib import Path

import cv2
import numpy as np
import torch
from safetensors.torch import load_file

from files import reading, write
from transformer import PRESETS
from vae import Decoder


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input_dir", type=Path, default=Path("out"))
    parser.add_argument("--output_dir", type=Path, default=Path("out"))
    parser.add_argument("--weights", type=Path, default=Path("weights"))
    parser.add_argument("--format", choices=["mp4", "png"], default="mp4")
    parser.add_argument("--fps", type=int, default=24)
    return parser.parse_args(argv)


def write_video(frames: np.ndarray, path: Path, fps: int) -> None:
    """Write RGB frames (T, H, W, 3) as MP4."""
    height, width = frames.shape[1:3]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), fps, (width, height))
    for frame in frames:
        writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    writer.release()


@torch.inference_mode()
def main(argv: list[str] | None = None) -> None:
    """Decode and write."""
    args = parse_args(argv)
    path = args.input_dir / "generation_config.json"
    with reading(path, "stage1_encode.py"):
        settings = json.loads(path.read_text())
        decoder = Decoder(PRESETS[settings["preset"]].latent_channels)
    path = args.weights / "vae.safetensors"
    with reading(path, "make_weights.py"):
        decoder.load_state_dict(load_file(path))
    decoder.cuda().eval()
    path = args.input_dir / "stage2_latents.safetensors"
    with reading(path, "stage2_denoise.py"):
        latents = load_file(path, device="cuda")["latents"]

    video = decoder(latents)[0]
    frames = ((video + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    frames = frames.permute(1, 2, 3, 0).contiguous().cpu()

    write({"frames": frames}, args.output_dir / "stage3_frames.safetensors")
    if args.format == "mp4":
        write_video(frames.numpy(), args.output_dir / "video.mp4", args.fps)
    else:
        for number, frame in enumerate(frames.numpy()):
            bgr = cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)
            cv2.imwrite(str(args.output_dir / f"frame_{number:04d}.png"), bgr)


if __name__ == "__main__":
    main()
