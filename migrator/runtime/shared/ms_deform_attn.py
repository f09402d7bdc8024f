"""The extension `MultiScaleDeformableAttention` in PyTorch: its kernels need CUDA.

https://github.com/fundamentalvision/Deformable-DETR. Each query reads some places of each level of
a feature map by bilinear interpolation, with zeros around it, and weights what it reads. All levels
are read at once and without looking at their sizes, which would wait for the device.
"""

import torch
from torch import Tensor

__all__ = ["ms_deform_attn_backward", "ms_deform_attn_forward"]


@torch.no_grad()
def ms_deform_attn_forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_loc: Tensor,
    attn_weight: Tensor,
    im2col_step: int,
) -> Tensor:
    """What each query reads: (batch, queries, heads * dim).

    ``value``: (batch, places of all levels, heads, dim); ``sampling_loc``, from 0 to 1: (batch,
    queries, heads, levels, points, 2); ``attn_weight`` the same without the 2.
    """
    return read_levels(value, spatial_shapes, level_start_index, sampling_loc, attn_weight)


def read_levels(
    value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor, sampling_loc: Tensor,
    attn_weight: Tensor,
) -> Tensor:  # fmt: skip
    """The same, with gradients."""
    batch, _, heads, dim = value.shape
    queries, levels, points = sampling_loc.shape[1], *sampling_loc.shape[3:5]
    shapes = spatial_shapes.to(value.device)
    heights, widths = (shapes[:, i].reshape(levels, 1) for i in range(2))
    starts = level_start_index.to(value.device).reshape(levels, 1)
    x = sampling_loc[..., 0] * widths - 0.5
    y = sampling_loc[..., 1] * heights - 0.5
    left, top = x.detach().floor(), y.detach().floor()
    by_head = value.permute(0, 2, 1, 3)
    result = value.new_zeros(batch, heads, queries, dim)
    for right in range(2):
        for below in range(2):
            column, row = (left + right).long(), (top + below).long()
            inside = (column >= 0) & (column < widths) & (row >= 0) & (row < heights)
            share = (x - left if right else 1 - x + left) * (y - top if below else 1 - y + top)
            weight = torch.where(inside, share * attn_weight, 0)
            place = starts + torch.where(inside, row * widths + column, 0)
            place = place.transpose(1, 2).flatten(2)[..., None].expand(-1, -1, -1, dim)
            read = by_head.gather(2, place).unflatten(2, (queries, levels * points))
            result = result + (read * weight.transpose(1, 2).flatten(3)[..., None]).sum(3)
    return result.transpose(1, 2).flatten(2)


def ms_deform_attn_backward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_loc: Tensor,
    attn_weight: Tensor,
    grad_output: Tensor,
    im2col_step: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``value``, ``sampling_loc`` and ``attn_weight``."""
    inputs = [x.detach().requires_grad_() for x in (value, sampling_loc, attn_weight)]
    with torch.enable_grad():
        output = read_levels(inputs[0], spatial_shapes, level_start_index, *inputs[1:])
    of_value, of_loc, of_weight = torch.autograd.grad(output, inputs, grad_output)
    return of_value, of_loc, of_weight
