"""Bilinear resizing in the precision of its input.

torch_xla 2.9 lowers it to products without a precision, which a TPU computes in bfloat16 whatever
``set_matmul_precision`` says; for bfloat16 images it even computes the coordinates in bfloat16, so
that pixels are sampled columns away; and its gradient runs on the CPU. torch's own decomposition,
four gathers and three interpolations, has none of this: within 4e-6 of the CPU in float32.
"""

import warnings
from collections.abc import Sequence

import torch
from torch._decomp.decompositions import _upsample_linear

# The registration lives as long as this object.
_library = torch.library.Library("aten", "IMPL")


def _bilinear(
    image: torch.Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> torch.Tensor:
    """``image`` of shape (N, C, H, W) as (N, C, *output_size), in its dtype."""
    size, scales = list(output_size), [scales_h, scales_w]
    return _upsample_linear(image, size, align_corners, scales)  # type: ignore[no-untyped-call]


def install() -> None:
    """Use the decomposition on XLA tensors, with and without gradients."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for key in ("XLA", "AutogradXLA"):
            _library.impl("upsample_bilinear2d", _bilinear, key, allow_override=True)
