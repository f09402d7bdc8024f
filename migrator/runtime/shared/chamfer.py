"""The extension `chamfer` of GRNet and PoinTr in PyTorch: its kernels need CUDA.

https://github.com/hzxie/GRNet. Points are (batch, points, 3).
"""

import torch
from torch import Tensor

__all__ = ["backward", "forward"]


@torch.no_grad()
def forward(xyz1: Tensor, xyz2: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For both, the squared distances to the nearest points of the other; then their indices."""
    squares = (xyz1[:, :, None] - xyz2[:, None]).square().sum(-1)
    dist1, idx1 = squares.min(2)
    dist2, idx2 = squares.min(1)
    return dist1, dist2, idx1.int(), idx2.int()


@torch.no_grad()
def backward(
    xyz1: Tensor, xyz2: Tensor, idx1: Tensor, idx2: Tensor, grad_dist1: Tensor, grad_dist2: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of both from those of their distances."""
    first, at2 = _differences(xyz1, xyz2, idx1, grad_dist1)
    second, at1 = _differences(xyz2, xyz1, idx2, grad_dist2)
    grad1, grad2 = torch.zeros_like(xyz1), torch.zeros_like(xyz2)
    return (
        grad1.scatter_add(1, at1, -second) + first,
        grad2.scatter_add(1, at2, -first) + second,
    )


def _differences(
    points: Tensor, others: Tensor, index: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of points by their own distances, and where the other ends of these are."""
    at = index.long()[..., None].expand(-1, -1, points.shape[2])
    return 2 * grad[..., None] * (points - others.gather(1, at)), at
