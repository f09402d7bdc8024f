"""Calls for which torch_tpu 0.2.0 ends the process, without an exception of Python.

Its compiler aborts for a gather from a tensor without elements, a Fourier transform over no
dimension, replicated padding that also cuts, and `index_reduce` of several dimensions. What has no
elements needs no kernel; the CPU computes the rest. It also computes the gradient of `grid_sample`
with reflection: torch_tpu's has the wrong sign where a place of the grid is reflected.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from ..device import is_loaded
from ..dispatch.cpu_fallback import by_cpu
from ..dispatch.replaced_kernels import Kernel, replace, stock

_REFLECTION = 2  # of grid_sampler's paddings
# The result, or None where the kernel of torch_tpu computes it.
Instead = Callable[..., Any]


def install() -> None:
    if not is_loaded():
        return
    for name in ("index_select", "index_add.out", "index_copy.out"):
        replace(name, _by_a_list(stock(name)))
    for name, instead in _INSTEAD.items():
        replace(name, _unless(instead, stock(name)))
    for n in (1, 2, 3):
        for name, place in (
            (f"replication_pad{n}d.out", 1),
            (f"replication_pad{n}d_backward", 2),
            (f"replication_pad{n}d_backward.grad_input", 2),
        ):
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse1"):
                replace(name, _unless(_cutting(name, place), stock(name)))


def _unless(instead: Instead, kernel: Kernel) -> Kernel:
    def computed(*args: Any, **options: Any) -> Any:
        result = instead(*args, **options)
        return kernel(*args, **options) if result is None else result

    return computed


def _by_a_list(kernel: Kernel) -> Kernel:
    """Tensors without dimensions: torch takes such an index for a list of one."""

    def computed(input: Tensor, dim: int, index: Tensor, *args: Any, **options: Any) -> Any:
        index = index if index.dim() else index.reshape(1)
        return kernel(input, dim if input.dim() else 0, index, *args, **options)

    return computed


def _index(input: Tensor, indices: Any, *, out: Tensor) -> Tensor | None:
    return None if out.numel() else out


def _index_select(input: Tensor, dim: int, index: Tensor) -> Tensor | None:
    if input.numel():
        return None
    shape = list(input.shape)
    shape[dim] = index.numel()
    if prod(shape):
        raise RuntimeError("index_select(): self indexing axis dim should be positive")
    return input.new_empty(shape)


def _grid_sampler(input: Tensor, grid: Tensor, *options: Any) -> Tensor | None:
    shape = (*input.shape[:2], *grid.shape[1:-1])
    return None if prod(shape) else input.new_empty(shape)


def _grid_sampler_backward(dimensions: int) -> Instead:
    on_cpu = by_cpu(f"grid_sampler_{dimensions}d_backward")

    def backward(gradient: Tensor, input: Tensor, grid: Tensor, *options: Any) -> Any:
        _, padding, _, asked = options
        if not gradient.numel():
            pairs = zip((input, grid), asked, strict=True)
            return tuple(torch.zeros_like(x) if wanted else None for x, wanted in pairs)
        return on_cpu(gradient, input, grid, *options) if padding == _REFLECTION else None

    return backward


def _unfold_backward(gradient: Tensor, sizes: Any, *options: Any) -> Tensor | None:
    return None if gradient.numel() else gradient.new_zeros(sizes)


def _channel_shuffle(input: Tensor, groups: int) -> Tensor | None:
    return None if input.numel() else input.new_empty(input.shape)


def _fft_c2c(input: Tensor, dim: Any, normalization: int, forward: bool) -> Tensor | None:
    return None if len(dim) else input.clone()


def _index_reduce(input: Tensor, *args: Any, **options: Any) -> Any:
    return None if input.dim() == 1 and input.numel() else _REDUCE(input, *args, **options)


def _cutting(name: str, place: int) -> Instead:
    on_cpu = by_cpu(name)

    def padded(*args: Any, **options: Any) -> Any:
        return on_cpu(*args, **options) if min(args[place]) < 0 else None

    return padded


_REDUCE = by_cpu("index_reduce.out")
_INSTEAD = {
    "index.Tensor_out": _index,
    "index_select": _index_select,
    "grid_sampler_2d": _grid_sampler,
    "grid_sampler_3d": _grid_sampler,
    "grid_sampler_2d_backward": _grid_sampler_backward(2),
    "grid_sampler_3d_backward": _grid_sampler_backward(3),
    "unfold_backward": _unfold_backward,
    "channel_shuffle": _channel_shuffle,
    "_fft_c2c": _fft_c2c,
    "index_reduce.out": _index_reduce,
}
