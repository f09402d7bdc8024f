"""Functions and layers of `mmcv.ops` in PyTorch: its kernels are for CUDA and the CPU.

https://mmcv.readthedocs.io/en/latest/api.html#module-mmcv.ops
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .deform_conv import DeformableLayer, Size, pair, shifted_convolution

__all__ = [
    "DeformConv2d",
    "DeformConv2dPack",
    "ModulatedDeformConv2d",
    "ModulatedDeformConv2dPack",
    "RoIAlign",
    "SigmoidFocalLoss",
    "batched_nms",
    "deform_conv2d",
    "modulated_deform_conv2d",
    "multi_scale_deformable_attn_pytorch",
    "nms",
    "point_sample",
    "roi_align",
    "sigmoid_focal_loss",
]


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor]:
    """`mmcv.ops.nms` of tensors: the boxes that stay, with their scores, and their indices."""
    import torchvision.ops

    index = torchvision.ops.nms(boxes, scores, iou_threshold)
    return torch.cat((boxes[index], scores[index].reshape(-1, 1)), dim=1), index


def batched_nms(
    boxes: Tensor,
    scores: Tensor,
    idxs: Tensor,
    nms_cfg: dict[str, Any] | None,
    class_agnostic: bool = False,
) -> tuple[Tensor, Tensor]:
    """`mmcv.ops.batched_nms`, of the type "nms": each class by itself, as `idxs` has them."""
    import torchvision.ops

    asked = dict(nms_cfg or {})
    together = asked.pop("class_agnostic", class_agnostic)
    asked.pop("split_thr", None)  # how it is computed
    kind, offset = asked.pop("type", "nms"), asked.pop("offset", 0)
    lowest, longest = asked.pop("score_threshold", 0), asked.pop("max_num", -1)
    index = torch.argsort(scores, descending=True)
    if nms_cfg is not None:
        threshold = asked.pop("iou_threshold")
        if kind != "nms" or offset or asked:
            raise NotImplementedError(f"batched_nms: {nms_cfg} is not supported here")
        if together:
            index = torchvision.ops.nms(boxes, scores, threshold)
        else:
            index = torchvision.ops.batched_nms(boxes, scores, idxs, threshold)
        if lowest > 0:
            index = index[scores[index] > lowest]
        index = index[:longest] if longest > 0 else index
    return torch.cat((boxes[index], scores[index].reshape(-1, 1)), dim=1), index


def roi_align(
    input: Tensor,
    boxes: Tensor,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: str = "avg",
    aligned: bool = True,
) -> Tensor:
    """`mmcv.ops.roi_align`, of means."""
    import torchvision.ops

    if pool_mode != "avg":
        raise NotImplementedError("roi_align: here, pool_mode has to be 'avg'")
    pooled: Tensor = torchvision.ops.roi_align(
        input, boxes, pair(output_size), spatial_scale, sampling_ratio, aligned
    )
    return pooled


class RoIAlign(nn.Module):
    """`mmcv.ops.RoIAlign`"""

    def __init__(
        self,
        output_size: Size,
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        pool_mode: str = "avg",
        aligned: bool = True,
        use_torchvision: bool = False,
    ) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = pair(output_size), float(spatial_scale)
        self.sampling_ratio, self.pool_mode = int(sampling_ratio), pool_mode
        self.aligned = aligned

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        return roi_align(
            input, rois, self.output_size, self.spatial_scale, self.sampling_ratio,
            self.pool_mode, self.aligned,
        )  # fmt: skip


def point_sample(
    input: Tensor,
    points: Tensor,
    align_corners: bool = False,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Tensor:
    """`mmcv.ops.point_sample`: an image at points from 0 to 1, (batch, points, 2) or
    (batch, rows, columns, 2)."""
    grid = points if points.dim() == 4 else points.unsqueeze(2)
    found = functional.grid_sample(input, 2.0 * grid - 1.0, mode, padding_mode, align_corners)
    return found if points.dim() == 4 else found.squeeze(3)


def sigmoid_focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.25,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`mmcv.ops.sigmoid_focal_loss` of (samples, classes) and the number of each sample's class,
    or one that is not among them for the background; the mean is one of samples."""
    classes = torch.arange(input.shape[1], device=input.device)
    is_class = target.reshape(-1, 1) == classes
    chance = torch.where(is_class, input.sigmoid(), (-input).sigmoid())  # of what is right
    log_chance = functional.logsigmoid(torch.where(is_class, input, -input))
    share = torch.where(is_class, alpha, 1 - alpha)
    loss = -share * (1 - chance) ** gamma * log_chance
    if weight is not None:
        loss = loss * weight[target].reshape(-1, 1)
    if reduction == "none":
        return loss
    return loss.sum() / input.shape[0] if reduction == "mean" else loss.sum()


class SigmoidFocalLoss(nn.Module):
    """`mmcv.ops.SigmoidFocalLoss`"""

    weight: Tensor | None

    def __init__(
        self, gamma: float, alpha: float, weight: Tensor | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.gamma, self.alpha, self.reduction = gamma, alpha, reduction
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return sigmoid_focal_loss(
            input, target, self.gamma, self.alpha, self.weight, self.reduction
        )


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    deform_groups: int = 1,
    bias: bool = False,
    im2col_step: int = 32,
) -> Tensor:
    """`mmcv.ops.deform_conv2d`: a convolution of shifted places, without a bias."""
    return shifted_convolution(
        input, offset, None, weight, None, stride, padding, dilation, groups, deform_groups
    )


def modulated_deform_conv2d(
    input: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """`mmcv.ops.modulated_deform_conv2d`: with a factor for each place that is read."""
    return shifted_convolution(
        input, offset, mask, weight, bias, stride, padding, dilation, groups, deform_groups
    )


class _Layer(DeformableLayer):
    """What mmcv's deformable layers have in common."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size, padding: Size,
        dilation: Size, groups: int, deform_groups: int,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        self.deform_groups = deform_groups

    def _offsets(self, number: int) -> nn.Conv2d:
        """The convolution that finds offsets: all are 0 at first."""
        layer = nn.Conv2d(
            self.in_channels, self.deform_groups * number * self.weight[0, 0].numel(),
            self.kernel_size, self.stride, self.padding, self.dilation,
        )  # fmt: skip
        nn.init.zeros_(layer.weight)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
        return layer

    def _settings(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.groups, self.deform_groups


class DeformConv2d(_Layer):
    """`mmcv.ops.DeformConv2d`, with its parameters and their first values."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool = False,
        im2col_step: int = 32,
    ) -> None:
        if bias:
            raise ValueError("a DeformConv2d of mmcv has no bias")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, deform_groups
        )
        nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")

    def forward(self, x: Tensor, offset: Tensor) -> Tensor:
        return deform_conv2d(x, offset, self.weight, *self._settings())


class DeformConv2dPack(DeformConv2d):
    """`mmcv.ops.DeformConv2dPack`: it finds the offsets itself."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool = False,
        im2col_step: int = 32,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
            deform_groups, bias,
        )  # fmt: skip
        self.conv_offset = self._offsets(2)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, self.conv_offset(x))


class ModulatedDeformConv2d(_Layer):
    """`mmcv.ops.ModulatedDeformConv2d`, with its parameters and their first values."""

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
        deform_groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, deform_groups
        )
        self._draw()
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def _draw(self) -> None:
        bound = (self.in_channels * self.kernel_size[0] * self.kernel_size[1]) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        return modulated_deform_conv2d(x, offset, mask, self.weight, self.bias, *self._settings())


class ModulatedDeformConv2dPack(ModulatedDeformConv2d):
    """`mmcv.ops.ModulatedDeformConv2dPack`: it finds offsets and factors itself."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
            deform_groups, bias,
        )  # fmt: skip
        self.conv_offset = self._offsets(3)
        self._draw()  # mmcv's draws again, too

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        offset_y, offset_x, mask = self.conv_offset(x).chunk(3, dim=1)
        return super().forward(x, torch.cat((offset_y, offset_x), dim=1), mask.sigmoid())


def multi_scale_deformable_attn_pytorch(
    value: Tensor,
    value_spatial_shapes: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """mmcv's own function in PyTorch, without the package that holds its kernels."""
    from .ms_deform_attn import read_levels

    sizes = value_spatial_shapes[:, 0] * value_spatial_shapes[:, 1]
    starts = sizes.cumsum(0) - sizes
    return read_levels(value, value_spatial_shapes, starts, sampling_locations, attention_weights)
