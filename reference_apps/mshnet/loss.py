"""SLSIoU: an IoU loss that is sensitive to the scale and the location of a small target."""

import math

import torch
from torch import nn


class SLSIoULoss(nn.Module):
    """Soft IoU while warming up; then weighted by the scale, and with a term for the location."""

    def __init__(self, warm_epoch: int) -> None:
        super().__init__()
        self.warm_epoch = warm_epoch

    def forward(self, logits: torch.Tensor, target: torch.Tensor, epoch: int) -> torch.Tensor:
        """Mean loss of a batch; logits and target: (batch, 1, height, width), target is 0 or 1."""
        pred = torch.sigmoid(logits)
        overlap = (pred * target).sum(dim=(1, 2, 3))
        pred_area = pred.sum(dim=(1, 2, 3))
        target_area = target.sum(dim=(1, 2, 3))
        iou = overlap / (pred_area + target_area - overlap)
        if epoch < self.warm_epoch:
            return 1 - iou.mean()
        spread = ((pred_area - target_area) / 2) ** 2
        scale = (torch.minimum(pred_area, target_area) + spread) / (
            torch.maximum(pred_area, target_area) + spread
        )
        return 1 - (scale * iou).mean() + location_loss(pred, target)


def centre(mass: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Centre of mass of each (1, height, width) image in polar coordinates: radius and angle.

    The origin is the upper left corner, and the sides of the image are 1 long.
    """
    height, width = mass.shape[-2:]
    y = (torch.arange(height, device=mass.device, dtype=mass.dtype) + 0.5) / height
    x = (torch.arange(width, device=mass.device, dtype=mass.dtype) + 0.5) / width
    total = mass.sum(dim=(1, 2, 3)) + 1e-8
    centre_y = (mass * y.view(-1, 1)).sum(dim=(1, 2, 3)) / total
    centre_x = (mass * x).sum(dim=(1, 2, 3)) / total
    return torch.sqrt(centre_x**2 + centre_y**2), torch.atan2(centre_y, centre_x)


def location_loss(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """How far the centres of mass are apart, by radius and by angle; 0 for an empty target."""
    pred_radius, pred_angle = centre(pred)
    target_radius, target_angle = centre(target)
    radius = 1 - torch.minimum(pred_radius, target_radius) / torch.maximum(
        pred_radius, target_radius
    )
    angle = (4 / math.pi**2) * (pred_angle - target_angle) ** 2
    present = target.amax(dim=(1, 2, 3))
    return ((radius + angle) * present).mean()
