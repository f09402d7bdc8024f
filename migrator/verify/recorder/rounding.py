"""Runs a program with different rounding, to see how much rounding changes its results.

Outputs of layers, the gradients that come back to them, and gradients of parameters are sums. In
another order, a sum differs by about one unit in the last place: not of the result, which is small
if terms cancel, but of the usual size of such sums. So each element is moved up or down at random,
by one unit of its own magnitude or of the tensor's root mean square, whichever is larger. A 0 stays
0: it was not used, or cut off.

For determinants, factorizations and solutions of equations, the matrix is moved instead. These
algorithms give the exact result of a matrix about one unit away; how far that result is from the
right one depends on the matrix.

A layer is a module without children, or a single product, norm or softmax.

What a DataLoader's dataset computes on the CPU is not moved: it is the same on every machine. If
rounding turned a byte of an image into the next one, that would be a large difference.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import torch
from tf32 import EPS, in_tf32
from torch import nn
from torch.nn import functional
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.data._utils import fetch

CONVOLUTIONS = (nn.modules.conv._ConvNd, nn.RNNBase)  # computed by cuDNN
_PRODUCTS = (*CONVOLUTIONS, nn.Linear, nn.Bilinear, nn.MultiheadAttention)


def _functions(names: str) -> set[Any]:
    homes = (torch, torch.Tensor, functional, torch.linalg)
    found = (getattr(home, name, None) for name in names.split() for home in homes)
    return {function for function in found if function is not None}


_CONVOLVING = _functions("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
_MULTIPLYING = _functions(
    "linear bilinear matmul __matmul__ __rmatmul__ mm bmm mv addmm addbmm baddbmm addmv einsum "
    "scaled_dot_product_attention multi_head_attention_forward"
)
_OTHERS = _functions("batch_norm layer_norm group_norm instance_norm softmax log_softmax")
_OF_MATRICES = _functions(
    "logdet slogdet det inverse inv inv_ex pinverse pinv solve solve_ex solve_triangular "
    "triangular_solve lstsq lu lu_factor lu_solve qr svd svdvals eig eigvals eigh eigvalsh "
    "matrix_exp"
)  # not cholesky: a matrix may be positive definite by less than a unit
_SIGNS = 2**20  # numbers used at once, from twice as many


class Rounding(TorchFunctionMode):
    """Rounds the computations of this process differently; ``number`` chooses the signs.

    ``stand_in`` counts how often the program names the GPU for which the CPU stands in.
    """

    def __init__(self, number: int, stand_in: Any) -> None:
        super().__init__()
        self.stand_in = stand_in
        self.loading = threading.local()  # `since`: how often, before a dataset was asked
        generator = torch._C.Generator().manual_seed(number)
        drawn = torch.empty(2 * _SIGNS).bernoulli_(0.5, generator=generator) * 2 - 1
        self.drawn = {drawn.device: drawn}
        self.places = random.Random(number)
        self.layers = 0  # running layers of torch: functions they call belong to them
        self.convolves = False  # whether the program has called a convolution, for its device

    def install(self) -> None:
        """Start, for the rest of the process."""
        called = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # attention has a child, but computes everything itself
            is_layer = isinstance(module, nn.MultiheadAttention) or not any(module.children())
            of_torch = is_layer and type(module).__module__.startswith("torch.")
            self.layers += of_torch
            try:
                output = called(module, *args, **kwargs)
            finally:
                self.layers -= of_torch
            if not is_layer or self.layers:
                return output
            multiplies = isinstance(module, _PRODUCTS)
            return self.moved(output, multiplies, isinstance(module, CONVOLUTIONS))

        for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            fetcher.fetch = self._while_loading(fetcher.fetch)
        register_optimizer_step_pre_hook(self._before_step)
        nn.Module.__call__ = call  # type: ignore[method-assign]
        self.__enter__()

    @property
    def _named(self) -> int:
        return self.stand_in.times_named if self.stand_in is not None else 0

    def _while_loading(self, fetch_batch: Callable[..., Any]) -> Callable[..., Any]:
        def fetch_exactly(*args: Any) -> Any:
            outer, self.loading.since = getattr(self.loading, "since", None), self._named
            try:
                return fetch_batch(*args)
            finally:
                self.loading.since = outer

        return fetch_exactly

    def _is_of_host(self, output: torch.Tensor) -> bool:
        """Whether a dataset computes it, and hasn't used a device."""
        since = getattr(self.loading, "since", None)
        return since is not None and output.device.type == "cpu" and self._named == since

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _OF_MATRICES and args and not self.layers:
            args = self.moved(args[0], False, False), *args[1:]
        output = function(*args, **kwargs)
        convolves = function in _CONVOLVING
        self.convolves |= convolves and not self._is_of_host(output)
        multiplies = convolves or function in _MULTIPLYING
        if self.layers or not (multiplies or function in _OTHERS) or "out" in kwargs:
            return output
        return self.moved(output, multiplies, convolves)

    def moved(self, output: Any, multiplies: bool, convolves: bool) -> Any:
        """A layer's result with different rounding."""
        if type(output) is tuple:  # of recurrent layers
            return tuple(self.moved(part, multiplies, convolves) for part in output)
        if not isinstance(output, torch.Tensor) or not output.is_floating_point():
            return output
        if self._is_of_host(output):
            return output
        eps = _unit(output.dtype, multiplies, convolves)
        with torch._C.DisableTorchFunction():  # this is not the program's
            result = output + self.step(output, eps)
            if result.requires_grad:  # by a hook, so that gradients have gradients, too
                result.register_hook(lambda gradient: gradient + self.step(gradient, eps))
        return result

    def step(self, tensor: torch.Tensor, eps: float) -> torch.Tensor:
        """The amounts by which a tensor is moved, in its shape and dtype."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            size = tensor.abs()
            typical = torch.linalg.vector_norm(size.float()) / max(tensor.numel(), 1) ** 0.5
            size.clamp_(min=typical.to(size.dtype)).mul_(tensor.sign())
            return size.mul_(self.signs(tensor)).mul_(eps)

    def signs(self, tensor: torch.Tensor) -> torch.Tensor:
        """Random signs in the tensor's shape: pieces of one drawn sequence, from random places.
        Drawing new ones takes longer than a convolution."""
        if tensor.device not in self.drawn:
            self.drawn[tensor.device] = self.drawn[torch.device("cpu")].to(tensor.device)
        drawn, number = self.drawn[tensor.device], tensor.numel()
        sizes = [_SIGNS] * (number // _SIGNS) + [number % _SIGNS]
        places = [self.places.randrange(_SIGNS) for _ in sizes]
        parts = [drawn[p : p + size] for p, size in zip(places, sizes, strict=True)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).view(tensor.shape)

    @torch.no_grad()
    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            gradient = parameter.grad
            if gradient is not None and not gradient.is_sparse:
                gradient.add_(self.step(gradient, _unit(gradient.dtype, False, False)))


def _unit(dtype: torch.dtype, multiplies: bool, convolves: bool) -> float:
    """One unit in the last place of the coarser of both back ends."""
    if dtype == torch.float16:  # bfloat16 on a TPU
        return torch.finfo(torch.bfloat16).eps
    if dtype == torch.float32 and multiplies:
        return EPS if in_tf32(convolves) else 2.0**-23
    return torch.finfo(dtype).eps
