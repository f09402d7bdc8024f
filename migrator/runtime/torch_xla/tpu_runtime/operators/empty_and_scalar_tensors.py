"""Tensors without elements or dimensions, where torch_xla 2.9 raises or crashes.

Each docstring says for which. Found by benchmarks/operator_audit.py.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils import _pytree as pytree

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import Kernel, replace_all, stock, substitute


def _roll(name: str) -> Kernel:
    """No elements; stock divides by zero."""
    roll = stock(name)
    return lambda self, *args: roll(self, *args) if self.numel() else self.clone()


def _repeat(name: str) -> Kernel:
    """No repetitions; stock raises."""
    repeat = stock(name)

    def kernel(self: Tensor, repeats: list[int]) -> Tensor:
        if all(repeats):
            return repeat(self, repeats)  # type: ignore[no-any-return]
        shape = (1,) * (len(repeats) - self.dim()) + tuple(self.shape)
        return self.new_empty([n * times for n, times in zip(shape, repeats, strict=True)])

    return kernel


def _nll_loss(name: str) -> Kernel:
    """One sample without a batch dimension; stock crashes."""
    loss = stock(name)

    def forward(self: Tensor, target: Tensor, *args: Any) -> Any:
        if self.dim() == 2:
            return loss(self, target, *args)
        result, total = loss(self[None], target.reshape(1), *args)
        return result.reshape(()), total

    def backward(gradient: Tensor, self: Tensor, target: Tensor, *args: Any) -> Any:
        if self.dim() == 2:
            return loss(gradient, self, target, *args)
        weight, reduction, *more = args
        if not reduction:
            gradient = gradient.reshape(1)
        return loss(gradient, self[None], target.reshape(1), weight, reduction, *more)[0]

    return backward if "backward" in name else forward


def _of_one_number(name: str) -> Kernel:
    """Along a dimension of a tensor that has none; stock raises."""
    compute = stock(name)

    def to_vector(value: Any) -> Any:
        return value.reshape(1) if isinstance(value, Tensor) and not value.dim() else value

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.dim():
            return compute(self, *args, **kwargs)
        results = compute(*map(to_vector, (self, *args)), **kwargs)
        return pytree.tree_map_only(Tensor, lambda tensor: tensor.reshape(()), results)

    return kernel


def _cumulative(name: str) -> Kernel:
    """No elements; stock raises."""
    compute = _of_one_number(name)

    def kernel(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        if self.numel():
            return compute(self, dim, dtype=dtype)  # type: ignore[no-any-return]
        return self.to(dtype or self.dtype, copy=True)

    return kernel


def _logsumexp(name: str) -> Kernel:
    """Integers, and no elements; stock raises. Of infinity, stock gives NaN."""

    def kernel(self: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
        if not (self.is_floating_point() or self.is_complex()):
            self = self.to(torch.get_default_dtype())
        if not self.numel():
            return self.exp().sum(dim, keepdim).log()
        most = self.amax(dim, True)
        most = torch.where(most.isinf(), 0, most)
        total = (self - most).exp().sum(dim, keepdim).log()
        return total + most.reshape(total.shape)

    return kernel


def _index_fill(name: str) -> Kernel:
    """One number; stock raises."""
    fill = stock(name)

    def kernel(self: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
        filled: Tensor = fill(self if self.dim() else self.reshape(1), dim, index, value)
        return filled.reshape(self.shape)

    return kernel


def _diagonal_scatter(name: str) -> Kernel:
    """A diagonal without elements; stock raises."""
    write = stock(name)
    return lambda self, src, *args: write(self, src, *args) if src.numel() else self.clone()


def _layer_norm(stock: Callable[..., Any]) -> Callable[..., Any]:
    """No elements; stock gives the weights no gradient."""
    decomposed = decomposition_table[torch.ops.aten.native_layer_norm.default]

    @functools.wraps(stock)
    def native_layer_norm(input: Tensor, *args: Any) -> Any:
        is_empty = input.device.type == DEVICE_TYPE and not input.numel()
        return (decomposed if is_empty else stock)(input, *args)

    return native_layer_norm


def install() -> None:
    """Replace the kernels, and a function."""
    substitute(torch, "native_layer_norm", _layer_norm(torch.native_layer_norm))
    replace_all(
        {
            _roll: "roll",
            _repeat: "repeat",
            _nll_loss: "nll_loss_forward nll_loss_backward",
            _of_one_number: """
                _log_softmax _log_softmax_backward_data _softmax _softmax_backward_data flip
                all.dim any.dim index_add index_copy index_fill.int_Scalar index_reduce
                index_select kthvalue linalg_vector_norm masked_scatter max.dim mean.dim min.dim
                prod.dim_int scatter.src scatter.value scatter_add sort sort.stable squeeze_copy.dim
                topk
            """,
            _cumulative: "cumsum cumprod",
            _logsumexp: "logsumexp",
            _index_fill: "index_fill.int_Tensor",
            _diagonal_scatter: "diagonal_scatter",
        }
    )
