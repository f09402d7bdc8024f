"""The command line of all three programs."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Options:
    """What to train on, how long, and where to write."""

    data: Path
    output: Path
    epochs: int
    length: int
    seed: int


def parse_args() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--length", type=int, default=32, help="bytes that texts are padded to")
    parser.add_argument("--seed", type=int, default=0)
    return Options(**vars(parser.parse_args()))
