"""Prepare a masked video clip: crop around the mask, resize, soften the mask's edge.

Clips are 5-D tensors (batch, frames, channels, height, width).
"""

import math
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from timing import StepTimer

PADDING_RATIO = 0.5
MIN_SIZE = (512, 512)
CRITICAL_ASPECT_RATIO = 2.0
SHORT_SIDE, LONG_SIDE, MULTIPLE = 640, 1280, 16
MAX_BATCH_BYTES = 200 * 1024 * 1024
BLUR_KERNEL, BLUR_SIGMA = 7, 1.5


class Box(NamedTuple):
    """A rectangle in pixels; bottom and right are exclusive."""

    top: int
    left: int
    bottom: int
    right: int


def read_clip(path: Path) -> torch.Tensor:
    """Decode a video file: uint8 RGB (1, frames, 3, height, width) on the CPU."""
    capture = cv2.VideoCapture(str(path))
    frames = []
    while True:
        found, frame = capture.read()
        if not found:
            break
        frames.append(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    capture.release()
    if not frames:
        raise FileNotFoundError(f"no video frame in {path}")
    return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2).unsqueeze(0).contiguous()


def mask_bounds(mask: torch.Tensor) -> Box | None:
    """Bounding box of mask > 0.5 over all frames and channels; None for an empty mask.

    mask: float (..., height, width), values in 0..1.
    """
    covered = (mask > 0.5).flatten(0, -3).any(dim=0)
    rows = torch.where(covered.any(dim=1))[0]
    columns = torch.where(covered.any(dim=0))[0]
    if rows.numel() == 0:
        return None
    return Box(
        int(rows[0].item()),
        int(columns[0].item()),
        int(rows[-1].item()) + 1,
        int(columns[-1].item()) + 1,
    )


def place(centre: float, size: int, limit: int) -> tuple[int, int]:
    """Centre an interval of `size` and shift it into 0..limit; even length, at most limit."""
    size = min(size + size % 2, limit - limit % 2)
    start = min(max(round(centre - size / 2), 0), limit - size)
    return start, start + size


def crop_box(bounds: Box | None, height: int, width: int) -> Box:
    """The region to crop around `bounds` in a height x width image.

    The bounds grow by PADDING_RATIO, to MIN_SIZE at least, and where one side is longer than
    CRITICAL_ASPECT_RATIO times the other the short one grows. Sides are even (the encoder wants
    that), and the region is shifted, then cut, so that it stays inside the image. Without bounds
    it is the whole image.
    """
    if bounds is None:
        bounds = Box(0, 0, height, width)
    crop_height = max(math.ceil((bounds.bottom - bounds.top) * (1 + PADDING_RATIO)), MIN_SIZE[0])
    crop_width = max(math.ceil((bounds.right - bounds.left) * (1 + PADDING_RATIO)), MIN_SIZE[1])
    crop_height = max(crop_height, math.ceil(crop_width / CRITICAL_ASPECT_RATIO))
    crop_width = max(crop_width, math.ceil(crop_height / CRITICAL_ASPECT_RATIO))
    top, bottom = place((bounds.top + bounds.bottom) / 2, crop_height, height)
    left, right = place((bounds.left + bounds.right) / 2, crop_width, width)
    return Box(top, left, bottom, right)


def crop(clip: torch.Tensor, box: Box) -> torch.Tensor:
    """Cut `box` out of the last two dimensions, any dtype."""
    return clip[..., box.top : box.bottom, box.left : box.right]


def target_size(height: int, width: int) -> tuple[int, int]:
    """Size after the resize: short side 640, long side at most 1280, floored to multiples of 16."""
    short, long = min(height, width), max(height, width)
    new_short, new_long = SHORT_SIDE, long * SHORT_SIDE // short
    if new_long > LONG_SIDE:
        new_short, new_long = short * LONG_SIDE // long, LONG_SIDE
    new_short, new_long = (max(s // MULTIPLE, 1) * MULTIPLE for s in (new_short, new_long))
    return (new_short, new_long) if height <= width else (new_long, new_short)


def resize(
    clip: torch.Tensor, size: tuple[int, int], max_batch_bytes: int = MAX_BATCH_BYTES
) -> torch.Tensor:
    """Bilinear resize without antialiasing of a float (batch, frames, C, H, W) or (N, C, H, W).

    Batches above `max_batch_bytes` go through in chunks, which keeps the peak memory down.
    """
    images = clip.flatten(0, 1) if clip.ndim == 5 else clip
    image_bytes = images[0].nelement() * images.element_size()
    per_chunk = max(1, max_batch_bytes // image_bytes)
    chunks = [
        TF.resize(part, list(size), interpolation=InterpolationMode.BILINEAR, antialias=False)
        for part in images.split(per_chunk)
    ]
    resized = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
    return resized.unflatten(0, clip.shape[:2]) if clip.ndim == 5 else resized


def blur_mask(mask: torch.Tensor) -> torch.Tensor:
    """Feather a binary uint8 mask (batch, frames, C, H, W): float32 of the same shape, 0..255."""
    images = mask.flatten(0, 1).float() * 255
    blurred = TF.gaussian_blur(
        images, kernel_size=[BLUR_KERNEL, BLUR_KERNEL], sigma=[BLUR_SIGMA, BLUR_SIGMA]
    )
    return blurred.unflatten(0, mask.shape[:2])


def run(
    data: Path, device: torch.device, timer: StepTimer, max_batch_bytes: int
) -> dict[str, torch.Tensor]:
    """Crop, resize and blur the clip in `data`; the results are on the CPU."""
    frames = read_clip(data / "clip.avi").pin_memory()
    mask = read_clip(data / "mask.avi")[:, :, :1].pin_memory()

    with timer.step("upload"):
        frames = frames.to(device, non_blocking=True)
        mask = mask.to(device, non_blocking=True).float() / 255

    with timer.step("crop"):
        box = crop_box(mask_bounds(mask), *mask.shape[-2:])
        frames_crop = crop(frames, box)
        mask_crop = crop(mask, box)

    with timer.step("resize"):
        size = target_size(*mask_crop.shape[-2:])
        frames_small = resize(frames_crop.float() / 255, size, max_batch_bytes)
        mask_small = (resize(mask_crop, size, max_batch_bytes) > 0.5).to(torch.uint8)

    with timer.step("blur"):
        mask_soft = blur_mask(mask_small)

    return {
        "crop.box": torch.tensor(box, dtype=torch.int64),
        "crop.frames": frames_crop.cpu(),
        "crop.mask": (mask_crop > 0.5).to(torch.uint8).cpu(),
        "resize.frames": frames_small.cpu(),
        "resize.mask": mask_small.cpu(),
        "blur.mask": mask_soft.cpu(),
    }
