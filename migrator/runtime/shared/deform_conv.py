"""Deformable convolutions in PyTorch: the kernels of mmcv, detectron2 and torchvision are for CUDA
and the CPU.

Each place of the result reads its input at places that are shifted by offsets, between pixels by
bilinear interpolation and with zeros around the image (https://arxiv.org/abs/1811.11168).
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

__all__ = ["DeformConv", "ModulatedDeformConv", "deform_conv", "modulated_deform_conv"]

Size: TypeAlias = int | tuple[int, int]


def shifted_convolution(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size,
    dilation: Size,
    groups: int,
    deform_groups: int,
) -> Tensor:
    """``offset``: (batch, 2 * deform_groups * places of the kernel, height, width), y before x;
    ``mask``, a factor for each place that is read: the same without the 2."""
    batch, _, height, width = input.shape
    filters, _, rows, columns = weight.shape
    shape = offset.shape[2:]
    offset = offset.reshape(batch, deform_groups, rows, columns, 2, *shape)
    down = _sampling_positions(
        input, shape[0], rows, *(pair(each)[0] for each in (stride, padding, dilation))
    )
    along = _sampling_positions(
        input, shape[1], columns, *(pair(each)[1] for each in (stride, padding, dilation))
    )
    y = (offset[..., 0, :, :] + down[:, None, :, None]).flatten(2, 3)
    x = (offset[..., 1, :, :] + along[:, None, :]).flatten(2, 3)
    read = _between_pixels(input.reshape(batch, deform_groups, -1, height, width), y, x)
    if mask is not None:
        read = read * mask.reshape(batch, deform_groups, 1, rows * columns, -1)
    read = read.reshape(batch, groups, -1, shape.numel())
    kernel = weight.reshape(groups, filters // groups, -1)
    result = torch.einsum("gok,ngkl->ngol", kernel, read).reshape(batch, filters, *shape)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


def _sampling_positions(
    like: Tensor, size: int, kernel: int, stride: int, before: int, apart: int
) -> Tensor:
    """Where a convolution reads along one axis: (places of the kernel, places of the result)."""
    start = torch.arange(size, device=like.device, dtype=like.dtype) * stride - before
    inside = torch.arange(kernel, device=like.device, dtype=like.dtype) * apart
    return inside[:, None] + start


def _between_pixels(images: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """images: (batch, groups, channels, height, width) at (batch, groups, places, …): (batch,
    groups, channels, places, …)."""
    height, width = images.shape[3:]
    top, left = y.detach().floor(), x.detach().floor()
    flat, places = images.flatten(3), y.shape[2]
    result = flat.new_zeros(())
    for below in range(2):
        for right in range(2):
            row, column = top + below, left + right
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            share = (y - top if below else 1 - y + top) * (x - left if right else 1 - x + left)
            place = torch.where(inside, row * width + column, 0).long().flatten(2)
            place = place[:, :, None].expand(-1, -1, flat.shape[2], -1)
            share = torch.where(inside, share, 0).flatten(2)[:, :, None]
            result = result + flat.gather(3, place) * share
    by_place: Tensor = result.unflatten(3, (places, -1))
    return by_place


def pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


class DeformableLayer(nn.Module):
    """What the layers of both libraries have: their settings, and a weight without values."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size, padding: Size,
        dilation: Size, groups: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = pair(kernel_size), pair(stride)
        self.padding, self.dilation = pair(padding), pair(dilation)
        self.groups = groups
        self.weight = nn.Parameter(
            torch.empty(out_channels, in_channels // groups, *self.kernel_size)
        )


# ---- detectron2.layers ---------------------------------------------------------------------------


def deform_conv(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 64,
) -> Tensor:
    """detectron2's `deform_conv`: a convolution of shifted places."""
    return shifted_convolution(
        input, offset, None, weight, None, stride, padding, dilation, groups, deformable_groups
    )


def modulated_deform_conv(
    input: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    deformable_groups: int = 1,
) -> Tensor:
    """detectron2's `modulated_deform_conv`: with a factor for each place that is read."""
    return shifted_convolution(
        input, offset, mask, weight, bias, stride, padding, dilation, groups, deformable_groups
    )


class DeformConv(DeformableLayer):
    """`detectron2.layers.DeformConv`, with its parameters and their first values."""

    bias: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deformable_groups: int = 1,
        bias: bool = False,
        norm: nn.Module | None = None,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if bias:
            raise ValueError("a DeformConv of detectron2 has no bias")
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        self.deformable_groups = deformable_groups
        self.norm, self.activation = norm, activation
        self.bias = None
        nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")

    def forward(self, x: Tensor, offset: Tensor) -> Tensor:
        return self._finished(
            deform_conv(
                x, offset, self.weight, self.stride, self.padding, self.dilation, self.groups,
                self.deformable_groups,
            )
        )  # fmt: skip

    def _finished(self, x: Tensor) -> Tensor:
        x = x if self.norm is None else self.norm(x)
        return x if self.activation is None else self.activation(x)


class ModulatedDeformConv(DeformConv):
    """`detectron2.layers.ModulatedDeformConv`, with its parameters and their first values."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deformable_groups: int = 1,
        bias: bool = True,
        norm: nn.Module | None = None,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
            deformable_groups, False, norm, activation,
        )  # fmt: skip
        self.with_bias = bias
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return self._finished(
            modulated_deform_conv(
                x, offset, mask, self.weight, self.bias, self.stride, self.padding, self.dilation,
                self.groups, self.deformable_groups,
            )
        )  # fmt: skip
