"""The gradient of `torch.nn.utils.weight_norm`, which torch_tpu 0.2.0 lacks."""

import torch
from torch import Tensor

from ..device import is_loaded
from ..dispatch.replaced_kernels import replace


def install() -> None:
    """Compose it of other operators, as torch does for its second derivative."""
    if is_loaded():
        replace("_weight_norm_interface_backward", _gradients)


def _gradients(
    gradient: Tensor, values: Tensor, lengths: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Those of the values and of their lengths."""
    compose = torch.ops.aten._weight_norm_differentiable_backward
    return compose(gradient, values, lengths, norms, dim)  # type: ignore[no-any-return]
