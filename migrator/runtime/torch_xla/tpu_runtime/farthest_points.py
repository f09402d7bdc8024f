"""Farthest point sampling, as one loop: unrolled, 512 points take minutes to compile."""

import torch
from torch import Tensor
from torch_xla.experimental.scan import scan

# `scan` takes derivatives, so all it carries are floats that depend on what it carried before.
Carry = tuple[Tensor, Tensor, Tensor, Tensor]


def farthest_points(points: Tensor, count: int, may_be: Tensor) -> Tensor:
    """Indices (batch, count), beginning with 0: each is the farthest from all before it.

    Of equally far ones, it is the first; only points that ``may_be`` chosen count.
    """
    distances = points.new_full(points.shape[:2], 1e10)
    first = torch.zeros_like(distances[:, :1])
    steps = torch.zeros(count, device=points.device)
    carry = points, may_be.to(points.dtype), distances, first
    return scan(_step, carry, steps, is_fn_pure=True)[1][..., 0].T.long()


def _step(carry: Carry, _: Tensor) -> tuple[Carry, Tensor]:
    points, may_be, distances, last = carry
    point = points.gather(1, last.long()[..., None].expand(-1, -1, points.shape[2]))
    distances = torch.minimum(distances, (points - point).square().sum(-1))
    following = torch.where(may_be > 0, distances, -1.0).argmax(1, keepdim=True)
    following = following + last * 0
    return (points, may_be, distances, following), last + 0
