"""Farthest point sampling, as a loop in Python."""

import torch
from torch import Tensor


def farthest_points(points: Tensor, count: int, may_be: Tensor) -> Tensor:
    """Indices (batch, count), beginning with 0: each is the farthest from all before it.

    Of equally far ones, it is the first; only points that ``may_be`` chosen count.
    """
    distances = points.new_full(points.shape[:2], 1e10)
    chosen = [torch.zeros_like(may_be[:, :1], dtype=torch.long)]
    for _ in range(count - 1):
        last = points.gather(1, chosen[-1][..., None].expand(-1, -1, points.shape[2]))
        distances = torch.minimum(distances, (points - last).square().sum(-1))
        chosen.append(torch.where(may_be, distances, -1).argmax(1, keepdim=True))
    return torch.cat(chosen, 1)
