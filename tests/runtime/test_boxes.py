"""Operators of torchvision: boxes, and what is read from images at them."""

from collections.abc import Callable

import pytest
import torch
import tpu_runtime as tpu
from target import TARGET
from target import WORD as DEVICE
from torch import Tensor
from torchvision import ops

tpu.setup()

BOXES = torch.tensor(
    [[0, 0, 3, 2.0], [3, 3, 11, 7], [2, 2, 5, 7], [7, 4, 15, 12], [3, 3, 11, 7.5], [3, 4, 11, 7]]
)
SCORES = torch.tensor([0.9, 0.5, 0.95, 0.4, 0.6, 0.55])


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.8])
def test_boxes_that_stay(threshold: float) -> None:
    """In the order of their scores, as many as are left."""
    labels = torch.tensor([0, 1, 0, 1, 1, 0])
    boxes, scores, there = (x.to(DEVICE) for x in (BOXES, SCORES, labels))
    wanted = ops.nms(BOXES, SCORES, threshold)
    assert ops.nms(boxes, scores, threshold).tolist() == wanted.tolist()
    wanted = ops.batched_nms(BOXES, SCORES, labels, threshold)
    assert ops.batched_nms(boxes, scores, there, threshold).tolist() == wanted.tolist()
    assert ops.nms(boxes[:0], scores[:0], threshold).tolist() == []


@pytest.mark.skipif(TARGET == "torch_xla", reason="says that it lacks them, as torch on a CPU")
def test_boxes_of_halves() -> None:
    halves, scores = BOXES.bfloat16(), SCORES.bfloat16()
    wanted = ops.nms(halves.float(), scores.float(), 0.3).tolist()
    assert ops.nms(halves.to(DEVICE), scores.to(DEVICE), 0.3).tolist() == wanted


POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "roi_pool": lambda x, b: ops.roi_pool(x, b, 2),
    "roi_align": lambda x, b: ops.roi_align(x, b, 2, aligned=True),
    "ps_roi_pool": lambda x, b: ops.ps_roi_pool(x, b, 2),
    "ps_roi_align": lambda x, b: ops.ps_roi_align(x, b, 2),
}


@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_regions(name: str) -> None:
    x = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rois = torch.tensor([[0, 0.0, 0, 3, 3], [1, 1, 2, 5, 4], [0, 2, 2, 5, 5]])
    there = x.detach().to(DEVICE).requires_grad_()
    results = POOLS[name](x, rois), POOLS[name](there, rois.to(DEVICE))
    for result in results:
        result.pow(2).sum().backward()
    assert torch.allclose(results[1].detach().cpu(), results[0].detach(), atol=1e-5)
    assert x.grad is not None and there.grad is not None
    assert torch.allclose(there.grad.cpu(), x.grad, atol=1e-5)
