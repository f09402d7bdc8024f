"""The functions of pointnet2_ops.pointnet2_utils in PyTorch: its kernels need CUDA.

https://github.com/erikwijmans/Pointnet2_PyTorch. Points are (batch, points, 3), features (batch,
channels, points).
"""

import torch
from torch import Tensor, nn

from .farthest_points import farthest_points

__all__ = [
    "GroupAll",
    "QueryAndGroup",
    "ball_query",
    "furthest_point_sample",
    "gather_operation",
    "grouping_operation",
    "three_interpolate",
    "three_nn",
]

_NEAR_ORIGIN = 1e-3  # points whose square is up to this are taken for padding, and never chosen


@torch.no_grad()
def furthest_point_sample(xyz: Tensor, npoint: int) -> Tensor:
    """Indices (batch, npoint), beginning with 0: each is the farthest from all before it."""
    return farthest_points(xyz, npoint, xyz.square().sum(-1) > _NEAR_ORIGIN).int()


def gather_operation(features: Tensor, idx: Tensor) -> Tensor:
    """The features at some points: (batch, channels, points)."""
    return features.gather(2, idx.long()[:, None].expand(-1, features.shape[1], -1))


def grouping_operation(features: Tensor, idx: Tensor) -> Tensor:
    """The features of groups of points: (batch, channels, groups, points in each)."""
    grouped: Tensor = gather_operation(features, idx.flatten(1)).unflatten(2, idx.shape[1:])
    return grouped


@torch.no_grad()
def three_nn(unknown: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """The distances to the three nearest known points, and their indices."""
    squares, index = _squares(unknown, known).topk(3, dim=-1, largest=False)
    return squares.sqrt(), index.int()


def three_interpolate(features: Tensor, idx: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums of the features of three points; weights get no gradient."""
    return (grouping_operation(features, idx) * weight.detach()[:, None]).sum(-1)


@torch.no_grad()
def ball_query(radius: float, nsample: int, xyz: Tensor, new_xyz: Tensor) -> Tensor:
    """Indices of the first points closer than radius; the first again where there are too few."""
    count = xyz.shape[1]
    place = torch.arange(count, dtype=torch.int32, device=xyz.device)
    place = torch.where(_squares(new_xyz, xyz) < radius * radius, place, count)
    found = place.sort(dim=-1).values[..., :nsample]
    found = torch.nn.functional.pad(found, (0, nsample - found.shape[-1]), value=count)
    first = found[..., :1]
    return torch.where(found < count, found, torch.where(first < count, first, 0))


def _squares(some: Tensor, others: Tensor) -> Tensor:
    """Squared distances, written out: in a product, near points would lose their difference."""
    return (some[:, :, None] - others[:, None]).square().sum(-1)


class QueryAndGroup(nn.Module):
    """Points within a radius, relative to its centre, above their features."""

    def __init__(self, radius: float, nsample: int, use_xyz: bool = True) -> None:
        super().__init__()
        self.radius, self.nsample, self.use_xyz = radius, nsample, use_xyz

    def forward(self, xyz: Tensor, new_xyz: Tensor, features: Tensor | None = None) -> Tensor:
        index = ball_query(self.radius, self.nsample, xyz, new_xyz)
        points = grouping_operation(xyz.transpose(1, 2), index)
        grouped = None if features is None else grouping_operation(features, index)
        points = points - new_xyz.transpose(1, 2)[..., None]
        return _together(points, grouped, self.use_xyz)


class GroupAll(nn.Module):
    """All points as one group, above their features."""

    def __init__(self, use_xyz: bool = True) -> None:
        super().__init__()
        self.use_xyz = use_xyz

    def forward(
        self, xyz: Tensor, new_xyz: Tensor | None, features: Tensor | None = None
    ) -> Tensor:
        points = xyz.transpose(1, 2)[:, :, None]
        return _together(points, None if features is None else features[:, :, None], self.use_xyz)


def _together(points: Tensor, features: Tensor | None, use_xyz: bool) -> Tensor:
    if features is None:
        return points
    return torch.cat([points, features], 1) if use_xyz else features
