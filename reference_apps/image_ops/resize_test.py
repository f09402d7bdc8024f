"""Does torchvision resize as OpenCV does, and what does bfloat16 cost?

The training set was prepared with PIL and OpenCV, the server decodes and resizes with torchvision
on the GPU. Both paths run on the same PNG and are compared after normalisation to [-1, 1].
"""

from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from timing import StepTimer

HEIGHT, WIDTH = 640, 1080
ROUNDING = 1e-5  # smaller differences are float32 rounding, not another pixel value
HALF_LEVEL = 1 / 255  # half of an 8-bit level in [-1, 1]


def to_unit(image: torch.Tensor) -> torch.Tensor:
    """uint8 image to 0..1 in the default dtype."""
    return image.to(torch.get_default_dtype()) / 255


def normalise(image: torch.Tensor) -> torch.Tensor:
    """0..1 to -1..1, same dtype."""
    return (image - 0.5) / 0.5


def resize_torchvision(image: torch.Tensor) -> torch.Tensor:
    """uint8 (3, H, W) on the GPU to (3, HEIGHT, WIDTH) in -1..1, in the default dtype."""
    resized = TF.resize(
        to_unit(image), [HEIGHT, WIDTH], interpolation=InterpolationMode.BILINEAR, antialias=False
    )
    return normalise(resized)


def resize_interpolate(image: torch.Tensor) -> torch.Tensor:
    """The same by F.interpolate, which, unlike torchvision, does not go through float32."""
    resized = F.interpolate(
        to_unit(image).unsqueeze(0), size=(HEIGHT, WIDTH), mode="bilinear", align_corners=False
    )
    return normalise(resized.squeeze(0))


def resize_opencv(image: np.ndarray) -> torch.Tensor:
    """uint8 (H, W, 3) to a uint8 (3, HEIGHT, WIDTH) tensor, on the CPU."""
    resized = cv2.resize(image, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR)
    return torch.from_numpy(resized).permute(2, 0, 1).contiguous()


def statistics(difference: torch.Tensor) -> torch.Tensor:
    """Max, min, mean and median of a difference image: float64 (4,) on the CPU."""
    difference = difference.float()
    values = [
        difference.max().item(),
        difference.min().item(),
        difference.mean().item(),
        difference.median().item(),
    ]
    return torch.tensor(values, dtype=torch.float64)


def pixel_counts(difference: torch.Tensor) -> torch.Tensor:
    """How many values there are, differ at all, differ visibly: int64 (3,) on the CPU."""
    magnitude = difference.abs()
    differing = (magnitude > ROUNDING).sum().item()
    visible = (magnitude > HALF_LEVEL).sum().item()
    return torch.tensor([difference.numel(), int(differing), int(visible)], dtype=torch.int64)


def largest(stats: torch.Tensor) -> float:
    """The largest magnitude of a difference image, from its statistics."""
    return max(stats[0].item(), -stats[1].item())


def precision_experiment(image: torch.Tensor, reference: torch.Tensor) -> dict[str, torch.Tensor]:
    """Repeat the comparison with bfloat16 as the default dtype.

    image: uint8 (3, H, W), reference: uint8 (3, HEIGHT, WIDTH) by OpenCV, both on the GPU.
    """
    results: dict[str, torch.Tensor] = {}
    for name, resizer in (("torchvision", resize_torchvision), ("interpolate", resize_interpolate)):
        exact = statistics(resizer(image) - normalise(to_unit(reference)))
        torch.set_default_dtype(torch.bfloat16)
        try:
            rough = statistics(resizer(image) - normalise(to_unit(reference)))
        finally:
            torch.set_default_dtype(torch.float32)
        factor = largest(rough) / largest(exact)
        print(f"bfloat16 ({name}): max difference {largest(rough):.4f}, x{factor:.1f}")
        results[f"bfloat16.{name}.factor"] = torch.tensor([factor], dtype=torch.float64)
    return results


def run(data: Path, timer: StepTimer) -> dict[str, torch.Tensor]:
    """Decode and resize the photo both ways and compare; the results are on the CPU."""
    path = str(data / "photo.png")

    with timer.step("decode"):
        decoded = decode_image(path, mode=ImageReadMode.RGB)
        photo = np.array(Image.open(path).convert("RGB"))
    decoders = (decoded.int() - torch.from_numpy(photo).permute(2, 0, 1).int()).abs().max()

    image = decoded.cuda()
    with timer.step("resize_torchvision"):
        by_torchvision = resize_torchvision(image)

    with timer.step("resize_opencv"):
        resized = resize_opencv(photo)
    reference = resized.cuda(non_blocking=True)
    by_opencv = normalise(to_unit(reference))

    with timer.step("compare"):
        difference = by_torchvision - by_opencv
        stats = statistics(difference)
        counts = pixel_counts(difference)
    print(
        f"torchvision - OpenCV: max {stats[0]:.4f}, min {stats[1]:.4f}, mean {stats[2]:.6f}, "
        f"median {stats[3]:.4f}, mean magnitude {difference.abs().mean().item():.4f}; "
        f"{counts[1]} of {counts[0]} values differ"
    )

    return {
        "decoders.difference": decoders.to(torch.int64).reshape(1),
        "photo.torchvision": by_torchvision.cpu(),
        "photo.opencv": resized,
        "photo.difference": difference.abs().amax(dim=0).cpu(),
        "photo.statistics": stats,
        "photo.counts": counts,
        **precision_experiment(image, reference),
    }
