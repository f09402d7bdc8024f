"""What the runtime has of mmcv.ops and detectron2.layers, against torchvision and formulas."""

import pytest
import torch
import tpu_runtime as tpu
from library_references import agrees, made
from target import WORD
from torch import Tensor
from torchvision import ops
from tpu_runtime import deform_conv, mmcv_ops

tpu.setup()

CASES = {  # stride, padding, dilation, groups, groups of offsets
    "plain": (1, 0, 1, 1, 1),
    "strides": (2, 1, 1, 1, 1),
    "two sizes": ((1, 2), (2, 0), (1, 2), 1, 1),
    "groups": (1, 1, 1, 2, 2),
    "groups of offsets": (1, 2, 2, 1, 4),
}


def inputs(case: tuple[object, ...], rows: int, columns: int) -> list[Tensor]:
    """Image, offsets, factors and kernel; some offsets lead out of the image."""
    stride, padding, dilation, groups, of_offsets = case
    image, kernel, bias = made((2, 4, 7, 6), (6, 4 // groups, rows, columns), (6,))  # type: ignore[operator]
    places = of_offsets * rows * columns  # type: ignore[operator]
    like = torch.nn.functional.conv2d(
        image,
        torch.ones(1, 4, rows, columns),
        None,
        stride,
        padding,
        dilation,  # type: ignore[arg-type]
    )
    height, width = like.shape[2:]
    offsets, mask = made((2, 2 * places, height, width), (2, places, height, width), seed=3)
    return [image, 2 * offsets, mask, kernel, bias]


@pytest.mark.parametrize("size", [(3, 3), (1, 2)])
@pytest.mark.parametrize("name", CASES)
def test_deformable_convolutions(name: str, size: tuple[int, int]) -> None:
    case = CASES[name]
    stride, padding, dilation = case[:3]
    x, offset, mask, kernel, bias = inputs(case, *size)

    def expected(x: Tensor, offset: Tensor, mask: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        return ops.deform_conv2d(x, offset, kernel, bias, stride, padding, dilation, mask)  # type: ignore[arg-type]

    agrees(
        lambda *t: mmcv_ops.modulated_deform_conv2d(*t, *case),  # type: ignore[arg-type]
        expected, x, offset, mask, kernel, bias,
    )  # fmt: skip
    agrees(
        lambda *t: deform_conv.deform_conv(*t, *case),  # type: ignore[arg-type]
        lambda x, offset, kernel: ops.deform_conv2d(
            x, offset, kernel, None, stride, padding, dilation  # type: ignore[arg-type]
        ),
        x, offset, kernel,
    )  # fmt: skip


@pytest.mark.parametrize("made_by", ["DeformConv", "ModulatedDeformConv"])
def test_layers_of_detectron2(made_by: str) -> None:
    torch.manual_seed(0)
    kernel = torch.empty(6, 2, 3, 3)
    torch.nn.init.kaiming_uniform_(kernel, nonlinearity="relu")
    torch.manual_seed(0)
    layer = getattr(deform_conv, made_by)(
        4, 6, 3, padding=1, groups=2, norm=torch.nn.BatchNorm2d(6).eval(), activation=torch.relu
    )
    assert torch.equal(layer.weight, kernel)
    names = {"weight", "norm.weight", "norm.bias"}
    names |= {"bias"} if made_by == "ModulatedDeformConv" else set()
    assert dict(layer.named_parameters()).keys() == names
    x, offset, mask = made((2, 4, 5, 5), (2, 18, 5, 5), (2, 9, 5, 5))
    given = (x, offset) if made_by == "DeformConv" else (x, offset, mask)
    wanted = ops.deform_conv2d(
        x, offset, kernel, padding=1, mask=None if made_by == "DeformConv" else mask
    )
    found = layer.to(WORD)(*(each.to(WORD) for each in given))
    wanted = torch.relu(wanted / (1 + 1e-5) ** 0.5)
    assert torch.allclose(found.detach().cpu(), wanted, atol=1e-5)


def test_layers_of_mmcv_begin_without_offsets() -> None:
    (x,) = made((2, 4, 5, 5))
    for layer in (mmcv_ops.DeformConv2dPack(4, 6, 3, padding=1),
                  mmcv_ops.ModulatedDeformConv2dPack(4, 6, 3, padding=1)):  # fmt: skip
        half = 1.0 if isinstance(layer, mmcv_ops.DeformConv2d) else 0.5
        wanted = half * torch.nn.functional.conv2d(x, layer.weight, padding=1)
        moved = layer.to(WORD)
        assert torch.allclose(moved(x.to(WORD)).detach().cpu(), wanted.detach(), atol=1e-5)
    names = {name for name, _ in mmcv_ops.ModulatedDeformConv2dPack(4, 6, 3).named_parameters()}
    assert names == {"weight", "bias", "conv_offset.weight", "conv_offset.bias"}


@pytest.mark.parametrize("aligned", [True, False])
def test_regions(aligned: bool) -> None:
    (x,) = made((2, 4, 6, 6))
    rois = torch.tensor([[0, 0.0, 0, 3, 3], [1, 1, 2, 5, 4], [0, 2, 2, 5, 5]])
    layer = mmcv_ops.RoIAlign(2, 0.5, 2, "avg", aligned)
    agrees(
        lambda x: layer(x, rois.to(WORD)),
        lambda x: ops.roi_align(x, rois.double(), 2, 0.5, 2, aligned),
        x,
    )
    with pytest.raises(NotImplementedError, match="pool_mode"):
        mmcv_ops.roi_align(x, rois, 2, pool_mode="max")


def test_boxes_that_stay() -> None:
    boxes = torch.tensor([[0, 0, 3, 2.0], [3, 3, 11, 7], [2, 2, 5, 7], [3, 3, 11, 7.5]])
    scores = torch.tensor([0.9, 0.5, 0.95, 0.6])
    wanted = ops.nms(boxes, scores, 0.3)
    found, index = mmcv_ops.nms(boxes.to(WORD), scores.to(WORD), 0.3)
    assert index.tolist() == wanted.tolist()
    assert torch.equal(found.cpu(), torch.cat((boxes[wanted], scores[wanted][:, None]), 1))


BOXES = torch.tensor([[0, 0, 3, 2.0], [3, 3, 11, 7], [2, 2, 5, 7], [3, 3, 11, 7.5], [0, 0, 3, 2.1]])
SCORES, CLASSES = torch.tensor([0.9, 0.5, 0.95, 0.6, 0.1]), torch.tensor([0, 1, 0, 1, 1])


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"type": "nms", "iou_threshold": 0.3}, [2, 0, 3, 4]),  # 3 is of the class of 1
        ({"iou_threshold": 0.3, "class_agnostic": True}, [2, 0, 3]),
        ({"iou_threshold": 0.3, "score_threshold": 0.2}, [2, 0, 3]),
        ({"iou_threshold": 0.3, "max_num": 2, "split_thr": 100}, [2, 0]),
        (None, [2, 0, 3, 1, 4]),
    ],
)
def test_boxes_of_each_class_that_stay(
    settings: dict[str, object] | None, wanted: list[int]
) -> None:
    on_device = [each.to(WORD) for each in (BOXES, SCORES, CLASSES)]
    found, index = mmcv_ops.batched_nms(*on_device, settings)
    assert index.tolist() == wanted
    assert torch.equal(found.cpu(), torch.cat((BOXES[wanted], SCORES[wanted][:, None]), 1))
    with pytest.raises(NotImplementedError, match="soft_nms"):
        mmcv_ops.batched_nms(*on_device, {"type": "soft_nms", "iou_threshold": 0.3})


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("shape", [(2, 5, 2), (2, 3, 5, 2)])
def test_images_at_points(shape: tuple[int, ...], align_corners: bool) -> None:
    x, points = made((2, 3, 4, 6), shape)
    points = points.abs().clamp(0.05, 0.95)

    def expected(x: Tensor, points: Tensor) -> Tensor:
        grid = 2 * (points if points.dim() == 4 else points[:, None]) - 1
        found = torch.nn.functional.grid_sample(x, grid, align_corners=align_corners)
        return found if points.dim() == 4 else found[:, :, 0]

    agrees(lambda x, p: mmcv_ops.point_sample(x, p, align_corners), expected, x, points)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_focal_loss(weighted: bool, reduction: str) -> None:
    """The formula of mmcv's kernel; 3 is the background's number."""
    (x,) = made((5, 3))
    target = torch.tensor([0, 2, 1, 1, 0] if weighted else [0, 3, 2, 1, 3])
    weight = torch.tensor([1.0, 2.0, 0.5]) if weighted else None

    def expected(x: Tensor) -> Tensor:
        rows = []
        for i in range(5):
            for c in range(3):
                p = x[i, c].sigmoid()
                loss = (-0.3 * (1 - p) ** 1.5 * p.log() if target[i] == c
                        else -0.7 * p**1.5 * (1 - p).log())  # fmt: skip
                rows.append(loss if weight is None else loss * weight[target[i]])
        losses = torch.stack(rows).reshape(5, 3)
        return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / 5}[reduction]

    on_device = weight if weight is None else weight.to(WORD)
    agrees(
        lambda x: mmcv_ops.sigmoid_focal_loss(
            x, target.to(WORD), 1.5, 0.3, on_device, reduction
        ),
        expected, x,
    )  # fmt: skip
    layer = mmcv_ops.SigmoidFocalLoss(1.5, 0.3, weight, reduction).to(WORD)
    assert torch.allclose(layer(x.to(WORD), target.to(WORD)).cpu(), expected(x), atol=1e-5)


def test_attention_over_levels() -> None:
    shapes = torch.tensor([[4, 3], [2, 2]])
    value, weights = made((2, 16, 2, 3), (2, 5, 2, 2, 4))
    at = made((2, 5, 2, 2, 4, 2), seed=1)[0].abs().clamp(0.02, 0.98)

    def expected(value: Tensor, at: Tensor, weights: Tensor) -> Tensor:
        levels, read = value.split([12, 4], 1), []
        for level, (height, width) in enumerate(shapes.tolist()):
            image = levels[level].permute(0, 2, 3, 1).reshape(4, 3, height, width)
            grid = 2 * at[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1
            read.append(torch.nn.functional.grid_sample(image, grid, align_corners=False))
        by_head = weights.transpose(1, 2).reshape(4, 1, 5, 8)
        result = (torch.stack(read, -2).flatten(-2) * by_head).sum(-1)
        return result.reshape(2, 6, 5).transpose(1, 2)

    agrees(
        lambda v, a, w: mmcv_ops.multi_scale_deformable_attn_pytorch(v, shapes.to(WORD), a, w),
        expected, value, at, weights,
    )  # fmt: skip
