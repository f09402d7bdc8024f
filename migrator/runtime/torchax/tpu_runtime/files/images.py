"""Load image files as tensors, with PIL.

torchax 0.0.13: once it is enabled, `import torchvision` raises, and `torchvision.io.decode_image`
crashes the process (segmentation fault). After `setup` it works; this needs no torchvision.
"""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

_PIL_MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA", "RGBA": "RGBA"}
_FORMATS = ("PNG", "JPEG", "WEBP")


def decode_image(
    source: str | os.PathLike[str] | torch.Tensor,
    mode: Any = "UNCHANGED",
    apply_exif_orientation: bool = False,
) -> torch.Tensor:
    """The result of `torchvision.io.decode_image`: a CPU tensor, uint8, (channels, height, width).

    ``source`` is a path, or a 1-dim uint8 tensor of the encoded bytes. ``mode`` is a
    `torchvision.io.ImageReadMode` or its name: UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA.
    UNCHANGED gives 1 channel for gray, 2 for gray and alpha, 3 for RGB, 4 for RGBA, and, like
    torchvision, 1 with the indices for palettes. JPEG may differ from torchvision's by rounding.
    Raises RuntimeError for files other than PNG, JPEG, WebP, and for 16-bit PNG; ValueError for an
    unknown mode.
    """
    from PIL import Image, ImageOps

    name = str(getattr(mode, "name", mode)).upper()
    if name != "UNCHANGED" and name not in _PIL_MODES:
        raise ValueError(f"unknown image mode {mode!r}: UNCHANGED, {', '.join(_PIL_MODES)}")
    if isinstance(source, torch.Tensor):
        if source.dtype != torch.uint8 or source.dim() != 1:
            raise RuntimeError("expected a 1-dim uint8 tensor of encoded bytes")
        data = source.cpu().numpy().tobytes()
    else:
        data = Path(source).read_bytes()
    try:
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except OSError as error:
        raise RuntimeError(f"unsupported image file: only {', '.join(_FORMATS)}") from error
    with image:
        if image.format == "PNG" and data[24] == 16:
            raise RuntimeError("16-bit PNG is not supported here: use PIL or OpenCV")
        if image.mode in ("CMYK", "YCCK"):
            raise RuntimeError("CMYK images are not supported here: convert with PIL")
        wanted = _PIL_MODES[name] if name != "UNCHANGED" else _unchanged_mode(image)
        picture = ImageOps.exif_transpose(image) if apply_exif_orientation else image
        if picture.mode == "P" and wanted != "P":
            picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
        pixels = np.array(picture if picture.mode == wanted else picture.convert(wanted))
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _unchanged_mode(image: Any) -> str:
    return {"1": "L"}.get(image.mode, str(image.mode))


def read_image(
    path: str | os.PathLike[str], mode: Any = "UNCHANGED", apply_exif_orientation: bool = False
) -> torch.Tensor:
    """`torchvision.io.read_image`: ``decode_image`` of the file at ``path``."""
    return decode_image(path, mode, apply_exif_orientation)
