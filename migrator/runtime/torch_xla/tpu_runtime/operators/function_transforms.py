"""Operators inside of torch.func's transforms (`vmap`, `grad`, `jvp`), and of batched gradients.

torch_xla 2.9 has kernels of its own for operators that torch composes of others. A transform then
finds no gradient: `grad(lambda x: x.std(0).sum())` is 0. Its gradients of activations don't
broadcast, as those of `jacrev` have to.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ..dispatch.replaced_kernels import Kernel, operator_of, replace, stock

_COMPOSED = "cross diag inverse kl_div logdet qr selu selu_ std std.dim svd"
_UNBATCHED = "max_unpool2d max_unpool3d"  # stock takes no input without a batch
_GRADIENTS = """
    hardsigmoid_backward hardswish_backward hardtanh_backward leaky_relu_backward
    log_sigmoid_backward sigmoid_backward silu_backward threshold_backward
"""

# The registrations live as long as this object.
_library = torch.library.Library("aten", "IMPL")


def _composed(name: str) -> Callable[..., Tensor]:
    """The operators that torch composes it of, which have gradients."""
    return operator_of(name).decompose  # type: ignore[no-any-return]


def _weighed(name: str) -> Kernel:
    """The sum of the weights that a loss is divided by: stock says 1."""
    compute = stock(name)

    def kernel(
        self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
    ) -> tuple[Tensor, Tensor]:
        loss, _ = compute(self, target, weight, reduction, ignore_index)
        if not reduction:
            return loss, self.new_zeros(())
        counts = target != ignore_index
        if weight is None:
            return loss, counts.sum().to(self.dtype)
        return loss, (weight[torch.where(counts, target, 0)] * counts).sum()

    return kernel


def install() -> None:
    """Compose them as torch does, and let gradients broadcast in transforms."""
    for name in ("nll_loss_forward", "nll_loss2d_forward"):
        replace(name, _weighed(name))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name in _COMPOSED.split():
            _library.impl(name, _composed(name), "AutogradXLA")
        for name in _UNBATCHED.split():
            _library.impl(name, decomposition_table[operator_of(name)], "AutogradXLA")
        for name in _GRADIENTS.split():
            of_others = decomposition_table[operator_of(name)]
            for key in ("FuncTorchBatched", "Batched"):  # of torch.func, and of autograd
                _library.impl(name, of_others, key, allow_override=True)
