"""Draw a synthetic infrared small-target data set in the layout of IRSTD-1k.

    python make_data.py --output data --size 32 --train 8 --test 4
    python make_data.py --output data_256 --size 256 --train 800 --test 201

Clutter (clouds, a horizon, sensor noise) with one to three small bright targets. An image depends
on the seed, the size and its number only, so a set can be made again at any time.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
from PIL import Image


def clutter(size: int, rng: np.random.Generator) -> np.ndarray:
    """Clouds of several scales over a horizon, with sensor noise: float64 (size, size), 0..1."""
    picture = np.zeros((size, size))
    for octave in range(2, 5):
        cells = rng.random((2**octave, 2**octave))
        picture += cv2.resize(cells, (size, size), interpolation=cv2.INTER_CUBIC) / 2**octave
    picture *= 0.9
    horizon = int(size * rng.uniform(0.5, 0.9))
    picture[horizon:] += rng.uniform(0.05, 0.15)
    return picture + rng.normal(scale=0.015, size=picture.shape)


def add_target(picture: np.ndarray, mask: np.ndarray, rng: np.random.Generator) -> None:
    """Add a bright spot to `picture` and its pixels to `mask`, in place."""
    size = len(picture)
    spread_x, spread_y = rng.uniform(1.2, 2.5, 2)  # in pixels, however large the image is
    x, y = rng.uniform(0.12 * size, 0.88 * size, 2)
    rows, columns = np.mgrid[0:size, 0:size]
    spot = np.exp(-(((columns - x) / spread_x) ** 2 + ((rows - y) / spread_y) ** 2) / 2)
    picture += rng.uniform(0.45, 0.8) * spot
    mask[spot > 0.4] = 255


def draw(size: int, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Image `number` of the set and its mask: uint8 (size, size)."""
    rng = np.random.default_rng([seed, size, number])
    picture, mask = clutter(size, rng), np.zeros((size, size), np.uint8)
    for _ in range(rng.integers(1, 3, endpoint=True)):
        add_target(picture, mask, rng)
    return (np.clip(picture, 0, 1) * 255).round().astype(np.uint8), mask


def main() -> None:
    """Write images, masks and the two lists."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("data"))
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--train", type=int, default=8)
    parser.add_argument("--test", type=int, default=4)
    parser.add_argument("--seed", type=int, default=20240301)
    args = parser.parse_args()
    for folder in ("images", "masks"):
        (args.output / folder).mkdir(parents=True, exist_ok=True)
    names = [f"synthetic_{number:04d}" for number in range(args.train + args.test)]
    for number, name in enumerate(names):
        image, mask = draw(args.size, args.seed, number)
        Image.fromarray(image).save(args.output / "images" / f"{name}.png", optimize=True)
        Image.fromarray(mask).save(args.output / "masks" / f"{name}.png", optimize=True)
    lists = {"trainval.txt": names[: args.train], "test.txt": names[args.train :]}
    for file, listed in lists.items():
        (args.output / file).write_text("".join(f"{name}\n" for name in listed))


if __name__ == "__main__":
    main()
