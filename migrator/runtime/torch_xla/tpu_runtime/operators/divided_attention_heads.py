"""Products of attention if heads are divided over the devices.

torch merges batch and heads into one dimension before it multiplies. XLA can't divide that by
heads unless they are its outer part: it would gather them, and each device would compute all of
attention. So heads are put first. (torch_xla's einsum keeps them apart, but has no precision.)
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import substitute
from ..distributed import mesh
from .scaled_dot_product import scaled_dot_product


def _is_divided(*values: Any) -> bool:
    """Whether these are batches of heads on devices that divide a model."""
    return mesh.divides(mesh.MODEL) and all(
        isinstance(x, Tensor) and x.dim() > 3 and x.device.type == DEVICE_TYPE for x in values
    )


def _matmul(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def matmul(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 2 or not _is_divided(*args):
            return stock(*args, **kwargs)
        left, right = args
        if left.shape[:-2] != right.shape[:-2]:
            return stock(left, right)
        left, right = left.movedim(-3, 0), right.movedim(-3, 0)
        product = torch.bmm(left.flatten(0, -3), right.flatten(0, -3))
        return product.unflatten(0, left.shape[:-2]).movedim(0, -3)

    return matmul


def install() -> None:
    """Keep batch and heads apart in products."""
    for owner, name in ((torch, "matmul"), (Tensor, "matmul"), (Tensor, "__matmul__")):
        substitute(owner, name, _matmul(getattr(owner, name)))
    stock = F.scaled_dot_product_attention

    @functools.wraps(stock)
    def attention(*args: Any, **kwargs: Any) -> Any:
        given = [*args[:3], *(kwargs[name] for name in ("query", "key", "value") if name in kwargs)]
        function = scaled_dot_product if _is_divided(*given) else stock
        return function(*args, **kwargs)

    substitute(F, "scaled_dot_product_attention", attention)
