"""Draw synthetic weights for all three stages; nobody has to download any.

    python make_weights.py --preset tiny --output weights

Writes text_encoder.safetensors, transformer.safetensors and vae.safetensors. The same numbers on
every machine: they are drawn on the CPU.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from text_encoder import TextEncoder
from transformer import PRESETS, VideoTransformer
from vae import Decoder


def draw(model: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Weights of about unit gain; biases and norms near 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, parameter in model.state_dict().items():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            weights[name] = noise / parameter[0].numel() ** 0.5
        else:
            weights[name] = 0.1 * noise + (1.0 if name.endswith("weight") else 0.0)
    return weights


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=PRESETS, default="tiny")
    parser.add_argument("--output", type=Path, default=Path("weights"))
    args = parser.parse_args(argv)
    config = PRESETS[args.preset]
    args.output.mkdir(parents=True, exist_ok=True)
    models = {
        "text_encoder": TextEncoder(config.text_dim),
        "transformer": VideoTransformer(config),
        "vae": Decoder(config.latent_channels),
    }
    for seed, (name, model) in enumerate(models.items()):
        save_file(draw(model, seed), args.output / f"{name}.safetensors")


if __name__ == "__main__":
    main()
