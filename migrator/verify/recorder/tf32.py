"""Whether a GPU rounds float32 factors to 10 bits."""

from __future__ import annotations

import os
import warnings

import torch

EPS = 2.0**-10


def in_tf32(convolution: bool) -> bool:
    """Whether float32 products, or convolutions, currently use TensorFloat32."""
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":  # NVIDIA's libraries heed it before all else
        return False
    if torch.version.cuda is None or torch._C._cuda_getDeviceCount() == 0:
        return False
    if torch.cuda.get_device_capability() < (8, 0):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9 has two interfaces for it
        part = torch.backends.cudnn if convolution else torch.backends.cuda.matmul
        return bool(part.allow_tf32)  # type: ignore[attr-defined]
