"""torch_cluster's neighbours in PyTorch: its kernels are for CUDA and the CPU.

https://github.com/rusty1s/pytorch_cluster. The order is that of its CUDA kernels: by distance for
`knn`, by index for `radius`; of equal distances, the first index is nearest. How many pairs there
are is read from the device. The distances of all pairs are in memory at once.
"""

import torch
from torch import Tensor

__all__ = ["knn", "knn_graph", "radius", "radius_graph"]


@torch.no_grad()
def knn(
    x: Tensor,
    y: Tensor,
    k: int,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    """`torch_cluster.knn`: pairs of a point of y and one of its k nearest of x."""
    if not (x.numel() and y.numel()):
        return _pairs_of_none(x)
    x, y = _as_rows(x), _as_rows(y)
    count = min(k, len(x))
    distances = _cosines(x, y) if cosine else _squares(x, y)
    same = _same_example(x, y, batch_x, batch_y)
    distances = torch.where(same, distances, torch.inf)
    # `topk` promises no order of equal values
    distances, index = (each[:, :count] for each in distances.sort(dim=1, stable=True))
    rows = torch.arange(len(y), device=index.device)[:, None].expand_as(index)
    there = distances < 1e10  # the kernel's largest
    return torch.stack([rows[there], index[there]])


def knn_graph(
    x: Tensor,
    k: int,
    batch: Tensor | None = None,
    loop: bool = False,
    flow: str = "source_to_target",
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    """`torch_cluster.knn_graph`: edges between each point and its k nearest."""
    pairs = knn(x, x, k if loop else k + 1, batch, batch, cosine)
    pairs = _directed(pairs, flow)
    return pairs if loop else pairs[:, pairs[0] != pairs[1]]


@torch.no_grad()
def radius(
    x: Tensor,
    y: Tensor,
    r: float,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    max_num_neighbors: int = 32,
    num_workers: int = 1,
    batch_size: int | None = None,
    ignore_same_index: bool = False,
) -> Tensor:
    """`torch_cluster.radius`: pairs of a point of y and one of x that is nearer than ``r``."""
    if not (x.numel() and y.numel()):
        return _pairs_of_none(x)
    x, y = _as_rows(x), _as_rows(y)
    near = (_squares(x, y) < r * r) & _same_example(x, y, batch_x, batch_y)
    if ignore_same_index:
        rows, columns = (torch.arange(len(each), device=x.device) for each in (y, x))
        near = near & (rows[:, None] != columns[None])
    near = near & (near.cumsum(1) <= max_num_neighbors)
    return near.nonzero().t()


def radius_graph(
    x: Tensor,
    r: float,
    batch: Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int = 32,
    flow: str = "source_to_target",
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    """`torch_cluster.radius_graph`: edges between points that are nearer than ``r``."""
    pairs = radius(x, x, r, batch, batch, max_num_neighbors, ignore_same_index=not loop)
    return _directed(pairs, flow)


def _directed(pairs: Tensor, flow: str) -> Tensor:
    assert flow in ("source_to_target", "target_to_source")
    return pairs.flip(0) if flow == "source_to_target" else pairs


def _pairs_of_none(x: Tensor) -> Tensor:
    return torch.empty(2, 0, dtype=torch.long, device=x.device)


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape(-1, 1) if x.dim() == 1 else x


def _squares(x: Tensor, y: Tensor) -> Tensor:
    """The squared distance of each of y to each of x, summed as the kernels sum: no `cdist`."""
    return (y[:, None] - x[None]).square().sum(-1)


def _cosines(x: Tensor, y: Tensor) -> Tensor:
    lengths = y.square().sum(1).sqrt()[:, None] * x.square().sum(1).sqrt()[None]
    return 1 - (y[:, None] * x[None]).sum(-1) / lengths


def _same_example(x: Tensor, y: Tensor, batch_x: Tensor | None, batch_y: Tensor | None) -> Tensor:
    """Which pairs belong to one example; a batch that isn't given is all of the first."""
    first = y.new_zeros(len(y), dtype=torch.long) if batch_y is None else batch_y
    second = x.new_zeros(len(x), dtype=torch.long) if batch_x is None else batch_x
    return first[:, None] == second[None]
