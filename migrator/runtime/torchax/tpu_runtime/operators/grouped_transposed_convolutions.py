"""Transposed convolutions in groups.

torchax 0.0.13 reshapes the weight, (in, out / groups, ...), to (in / groups, out, ...), which mixes
the groups: results are wrong unless each has one channel.
"""

from typing import Any

import torch
from torchax.ops import jaten
from torchax.tensor import Environment

from ..dispatch.calls import register
from ..dispatch.jax_kernels import Array


def convolution(
    x: Array, weight: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Array:  # fmt: skip
    """`aten.convolution`, for a weight whose order the reshape makes right."""
    if transposed and groups > 1:
        by_group = weight.reshape(groups, -1, *weight.shape[1:])
        weight = by_group.swapaxes(0, 1).reshape(weight.shape)
    return jaten._aten_convolution(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def install(env: Environment) -> None:
    """Replace the operator."""
    register(env, torch.ops.aten.convolution, convolution, of_arrays=True)
