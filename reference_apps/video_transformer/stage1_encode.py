"""Stage 1: the prompt's embeddings.

    python stage1_encode.py --prompt "a boat on a lake" --output_dir out

Writes stage1_embeddings.safetensors and generation_config.json.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from files import reading, write
from text_encoder import TextEncoder, tokenize
from transformer import PRESETS


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--negative_prompt", default="")
    parser.add_argument("--preset", choices=PRESETS, default="tiny")
    parser.add_argument("--weights", type=Path, default=Path("weights"))
    parser.add_argument("--output_dir", type=Path, default=Path("out"))
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--width", type=int, default=832)
    parser.add_argument("--max_tokens", type=int, default=64)
    parser.add_argument("--vision_tokens", type=int, default=8)
    args = parser.parse_args(argv)
    if args.height % 16 or args.width % 16:
        parser.error(f"{args.height} x {args.width}: height and width have to be multiples of 16")
    return args


@torch.inference_mode()
def main(argv: list[str] | None = None) -> None:
    """Encode both prompts and write what stage 2 needs."""
    args = parse_args(argv)
    config = PRESETS[args.preset]
    encoder = TextEncoder(config.text_dim)
    path = args.weights / "text_encoder.safetensors"
    with reading(path, "make_weights.py"):
        encoder.load_state_dict(load_file(path))
    encoder.cuda().eval()

    tensors = {}
    for name, prompt in (("text", args.prompt), ("negative", args.negative_prompt)):
        tokens, mask = tokenize(prompt, args.max_tokens)
        tensors[name] = encoder(tokens[None].cuda()).cpu()
        tensors[f"{name}_mask"] = mask[None]
    # No first frame is given: text to video.
    tensors["vision"] = torch.zeros(1, args.vision_tokens, config.vision_dim)

    write(tensors, args.output_dir / "stage1_embeddings.safetensors")
    settings = {"preset": args.preset, "height": args.height, "width": args.width}
    path = args.output_dir / "generation_config.json"
    path.write_text(json.dumps({**settings, "prompt": args.prompt}, indent=2) + "\n")
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
