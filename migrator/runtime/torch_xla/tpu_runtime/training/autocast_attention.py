"""Attention under autocast: queries, keys and values get one dtype."""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import substitute


def install() -> None:
    """Apply autocast to attention, as on CUDA.

    torch_xla 2.9 doesn't: if a rotary embedding, or a norm, turns queries and keys to float32, and
    the values are bfloat16, `scaled_dot_product_attention` raises.
    """
    stock = F.scaled_dot_product_attention

    def cast(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            if value.device.type == DEVICE_TYPE and value.dtype != torch.float64:
                return value.to(torch.get_autocast_dtype(DEVICE_TYPE))
        return value

    @functools.wraps(stock)
    def attention(*args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled(DEVICE_TYPE):
            args = tuple(map(cast, args))
            kwargs = {name: cast(value) for name, value in kwargs.items()}
        return stock(*args, **kwargs)

    substitute(F, "scaled_dot_product_attention", attention)
