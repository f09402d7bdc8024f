"""Draw the test material: one photo-like PNG, one short clip and the mask clip that goes with it.

    python make_data.py --output data

Everything comes from formulas and one fixed seed, so the files can be made again at any time.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

WIDTH, HEIGHT = 1920, 1080
FRAMES = 3
SEED = 20240229
LINES = ("CROP / RESIZE / BLUR", "The quick brown fox jumps", "0123456789 +-*/ (){}[]")


def background(shift: float) -> np.ndarray:
    """Slow colour waves: float32 RGB of shape (HEIGHT, WIDTH, 3), values in 0..255."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    waves = [
        np.sin(x / 310 + shift) + np.cos(y / 230),
        np.sin((x + y) / 410 - shift) + np.cos((x - 2 * y) / 350),
        np.cos(x / 530 - y / 270 + shift) + np.sin(y / 190),
    ]
    return 127.5 + 45 * np.stack(waves, axis=-1)


def zone_plate(size: int) -> np.ndarray:
    """Rings that get finer outwards, the hard case of every resize: float32 (size, size)."""
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) - size / 2
    return 127.5 + 120 * np.cos((x * x + y * y) * (np.pi * 0.9 / size))


def write_text(picture: np.ndarray, left: int, top: int) -> None:
    """Draw text, a checkerboard and hairlines (hard edges) into uint8 RGB `picture`, in place."""
    for row, line in enumerate(LINES):
        scale = 1.9 - 0.5 * row
        origin = (left, top + 70 * row)
        colour = (255, 250, 235) if row % 2 == 0 else (12, 16, 28)
        cv2.putText(picture, line, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, colour, 2, cv2.LINE_AA)
    board = np.indices((96, 320)).sum(axis=0) // 4 % 2 * 255
    picture[top + 180 : top + 276, left : left + 320] = board[..., None]
    for line in range(40):
        cv2.line(
            picture, (left + 360, top + 180), (left + 740, top + 180 + 5 * line), (250,) * 3, 1
        )


def add_noise(picture: np.ndarray, box: tuple[int, int, int, int], seed: int) -> None:
    """Add sensor-like noise to the (left, top, right, bottom) part of uint8 `picture`, in place."""
    left, top, right, bottom = box
    part = picture[top:bottom, left:right]
    noise = np.random.default_rng(seed).normal(0.0, 9.0, part.shape)
    part[:] = np.clip(part + noise, 0, 255).astype(np.uint8)


def photo() -> np.ndarray:
    """The still picture of the resize test: uint8 RGB (HEIGHT, WIDTH, 3)."""
    picture = np.clip(background(0.0), 0, 255).astype(np.uint8)
    picture[520:1040, 1340:1860] = zone_plate(520)[..., None].astype(np.uint8)
    write_text(picture, 90, 120)
    add_noise(picture, (90, 600, 410, 800), SEED)
    return picture


def clip_frame(index: int) -> tuple[np.ndarray, np.ndarray]:
    """Frame `index` with its mask: uint8 RGB (HEIGHT, WIDTH, 3) and uint8 (HEIGHT, WIDTH)."""
    picture = np.clip(background(0.15 * index), 0, 255).astype(np.uint8)
    centre = (900 + 22 * index, 510 + 9 * index)
    shape = np.zeros((HEIGHT, WIDTH), np.uint8)
    cv2.ellipse(shape, centre, (300, 215), 20 + 4 * index, 0, 360, 255, -1)
    cv2.circle(shape, (centre[0] + 190, centre[1] - 150), 90, 255, -1)
    left, top = centre[0] - 320, centre[1] - 240
    texture = picture.copy()
    texture[top : top + 480, left : left + 480] = zone_plate(480)[..., None].astype(np.uint8)
    write_text(texture, left + 20, top + 130)
    add_noise(texture, (left + 300, top + 250, left + 500, top + 400), SEED + 1 + index)
    picture[shape > 0] = texture[shape > 0]
    return picture, cv2.GaussianBlur(shape, (31, 31), 6.0)


def write_clip(path: Path, frames: list[np.ndarray]) -> None:
    """Write uint8 RGB frames as a lossless FFV1 clip and make sure that it reads back equal."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"FFV1"), 25, (WIDTH, HEIGHT))
    for frame in frames:
        writer.write(np.ascontiguousarray(frame[..., ::-1]))
    writer.release()
    reader = cv2.VideoCapture(str(path))
    for frame in frames:
        found, stored = reader.read()
        if not found or not np.array_equal(stored[..., ::-1], frame):
            raise RuntimeError(f"{path.name} was not stored without loss by this OpenCV build")
    reader.release()


def main() -> None:
    """Write photo.png, clip.avi and mask.avi."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("data"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    Image.fromarray(photo()).save(output / "photo.png", optimize=True)
    frames, masks = zip(*(clip_frame(index) for index in range(FRAMES)), strict=True)
    write_clip(output / "clip.avi", list(frames))
    write_clip(output / "mask.avi", [np.repeat(mask[..., None], 3, axis=-1) for mask in masks])
    for path in sorted(output.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
