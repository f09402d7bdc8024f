"""torch_scatter's functions in PyTorch: its kernels are for CUDA and the CPU.

https://pytorch-scatter.readthedocs.io. Of equal values, the first is the smallest or largest one.
Without `dim_size`, the number of results is read from the index, which waits for the device.
"""

import torch
from torch import Tensor

__all__ = [
    "scatter",
    "scatter_add",
    "scatter_log_softmax",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_softmax",
    "scatter_sum",
    "segment_coo",
    "segment_csr",
]


def scatter_sum(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
) -> Tensor:
    """`torch_scatter.scatter_sum`: sums of the elements with the same index; added to ``out``."""
    index = _spread(index, src, dim)
    if out is not None:
        return out.scatter_add_(dim, index, src)
    return src.new_zeros(_sizes(src, index, dim, dim_size)).scatter_add_(dim, index, src)


scatter_add = scatter_sum


def scatter_mean(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
) -> Tensor:
    """`torch_scatter.scatter_mean`; integers are rounded down, ``out`` is part of the sum."""
    total = scatter_sum(src, index, dim, out, dim_size)
    ones = total.new_ones(index.shape, requires_grad=False)
    along = 0 if index.dim() == 1 else dim % src.dim()
    along = min(along, index.dim() - 1)
    count = scatter_sum(ones, index, along, dim_size=total.shape[dim]).clamp(min=1)
    count = _spread(count, total, dim)
    if total.is_floating_point():
        return total.div_(count) if out is not None else total / count
    return total.div_(count, rounding_mode="floor")


def scatter_max(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`torch_scatter.scatter_max`: values and their positions; 0 and ``src.size(dim)`` of none."""
    return _extreme(src, index, dim, out, dim_size, "amax")


def scatter_min(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`torch_scatter.scatter_min`: values and their positions; 0 and ``src.size(dim)`` of none."""
    return _extreme(src, index, dim, out, dim_size, "amin")


def scatter(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> Tensor:
    """`torch_scatter.scatter`: the function that ``reduce`` names, without positions."""
    if reduce in ("sum", "add"):
        return scatter_sum(src, index, dim, out, dim_size)
    if reduce == "mean":
        return scatter_mean(src, index, dim, out, dim_size)
    if reduce in ("min", "max"):
        return _extreme(src, index, dim, out, dim_size, f"a{reduce}")[0]
    raise NotImplementedError(
        f"scatter: reduce is {reduce!r}; here it may be sum, mean, min or max"
    )


def segment_coo(
    src: Tensor,
    index: Tensor,
    out: Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> Tensor:
    """`torch_scatter.segment_coo`, of a sorted index with the first dimensions of ``src``."""
    dim = index.dim() - 1
    index = index.reshape(index.shape + (1,) * (src.dim() - index.dim())).expand(
        *src.shape[:dim], -1, *src.shape[dim + 1 :]
    )
    return scatter(src, index, dim, out, dim_size, reduce)


def segment_csr(
    src: Tensor, indptr: Tensor, out: Tensor | None = None, reduce: str = "sum"
) -> Tensor:
    """`torch_scatter.segment_csr`: ``indptr`` has where each segment begins, and the end."""
    if indptr.dim() != 1 or out is not None:
        raise NotImplementedError("segment_csr: here, indptr has one dimension, and out is None")
    count = indptr.shape[0] - 1
    starts = indptr.new_zeros(src.shape[0] + 1)
    number = starts.scatter_add(0, indptr, torch.ones_like(indptr)).cumsum(0)[:-1] - 1
    number = torch.where(number < 0, count, number)  # elements before the first segment
    return segment_coo(src, number, None, count + 1, reduce)[:-1]


def scatter_softmax(
    src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None
) -> Tensor:
    """`torch_scatter.scatter_softmax`: softmax over the elements with the same index."""
    shifted, index, dim_size = _shifted(src, index, dim, dim_size)
    powers = shifted.exp()
    return powers / scatter_sum(powers, index, dim, dim_size=dim_size).gather(dim, index)


def scatter_log_softmax(
    src: Tensor, index: Tensor, dim: int = -1, eps: float = 1e-12, dim_size: int | None = None
) -> Tensor:
    """`torch_scatter.scatter_log_softmax`: its logarithm; ``eps`` is added to the sums."""
    shifted, index, dim_size = _shifted(src, index, dim, dim_size)
    total = scatter_sum(shifted.exp(), index, dim, dim_size=dim_size)
    return shifted - (total + eps).log().gather(dim, index)


def _spread(index: Tensor, src: Tensor, dim: int) -> Tensor:
    """The index for each element; one of a single dimension is along ``dim``."""
    dim %= src.dim()
    if index.dim() == 1:
        index = index.reshape((1,) * dim + (-1,))
    return index.reshape(index.shape + (1,) * (src.dim() - index.dim())).expand(src.shape)


def _sizes(src: Tensor, index: Tensor, dim: int, dim_size: int | None) -> list[int]:
    sizes = list(src.shape)
    if dim_size is None:
        dim_size = int(index.max()) + 1 if index.numel() else 0
    sizes[dim] = dim_size
    return sizes


def _extreme(
    src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None, reduce: str
) -> tuple[Tensor, Tensor]:
    """The largest or smallest elements; only these get a gradient."""
    if out is not None:
        raise NotImplementedError("scatter_min and scatter_max: here, out has to be None")
    index = _spread(index, src, dim)
    sizes = _sizes(src, index, dim, dim_size)
    of_type = torch.finfo if src.is_floating_point() else torch.iinfo
    worst = of_type(src.dtype).min if reduce == "amax" else of_type(src.dtype).max
    values = src.detach()
    best = values.new_full(sizes, worst).scatter_reduce(dim, index, values, reduce)
    length = src.shape[dim]
    shape = [1] * src.dim()
    shape[dim] = length
    place = torch.arange(length, device=src.device).reshape(shape).expand(src.shape)
    place = torch.where(values == best.gather(dim, index), place, length)
    first = place.new_full(sizes, length).scatter_reduce(dim, index, place, "amin")
    sizes[dim] = 1
    return torch.cat([src, src.new_zeros(sizes)], dim).gather(dim, first), first


def _shifted(
    src: Tensor, index: Tensor, dim: int, dim_size: int | None
) -> tuple[Tensor, Tensor, int]:
    """The elements less the largest with the same index, the index for each, and its size."""
    if not src.is_floating_point():
        raise ValueError("the softmax of integers is not defined")
    index = _spread(index, src, dim)
    largest = scatter_max(src.detach(), index, dim, dim_size=dim_size)[0]
    return src - largest.gather(dim, index), index, largest.shape[dim]
