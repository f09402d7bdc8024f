"""Antialiased resizing: `F.interpolate(antialias=True)`, torchvision's default for tensors.

torchax 0.0.13 raises "'tuple' object is not callable". Resizing is linear and separable by axis, so
torch's own CPU operator, applied to unit vectors, gives the weights that the device multiplies by.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from torchax.ops.ops_registry import Operator
from torchax.tensor import Environment

from ..dispatch.calls import native


@functools.lru_cache(maxsize=64)
def _weights(
    method: str, size: int, new_size: int, align_corners: bool, scale: float | None
) -> torch.Tensor:
    """The (new_size, size) float32 matrix that resizes one axis."""
    units = native(torch.eye, (size,), {}).reshape(size, 1, 1, size)
    operator = getattr(torch.ops.aten, method).default
    with torch._C.DisableTorchFunction():
        resized = native(operator, (units, [1, new_size], align_corners, None, scale), {})
    return resized.reshape(size, new_size).t().contiguous()  # type: ignore[no-any-return]


def _resize(method: str) -> Any:
    def resize(
        image: Any,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        height, width = image.shape[-2:]
        rows = _weights(method, height, output_size[0], align_corners, scales_h).numpy()
        columns = _weights(method, width, output_size[1], align_corners, scales_w).numpy()
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        resized = jnp.einsum("...hw,vw->...hv", image.astype(dtype), columns, precision="highest")
        resized = jnp.einsum("...hv,uh->...uv", resized, rows, precision="highest")
        return resized.astype(image.dtype)

    return resize


def install(env: Environment) -> None:
    """Replace the two operators."""
    for method in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
        operator = getattr(torch.ops.aten, method)
        env._ops[operator] = Operator(
            operator, _resize(method), is_jax_function=True, is_user_defined=True, needs_env=False,
            is_view_op=False,
        )  # fmt: skip
