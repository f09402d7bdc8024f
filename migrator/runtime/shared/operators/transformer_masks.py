"""Masks of `nn.TransformerEncoder` and `nn.TransformerDecoder`.

In each call torch tests whether a mask is causal, to choose a kernel. That reads a value from the
device, which a compiled step can't; with the mask itself the results are the same.

Without gradients, the encoder on a GPU skips the padding after a text, and returns 0 there. Other
devices compute it, which changes, for example, a mean over all positions.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules import transformer

from ..device import DEVICE_TYPE

_fast = True  # the program's setting: torchax turns off torch's own switch for itself


def _is_causal(mask: object, is_causal: bool | None = None, size: int | None = None) -> bool:
    return is_causal is True


def _leaves_padding_out(encoder: Any, src: Tensor) -> bool:
    """Whether torch 2.9 would skip padding on a GPU, for a batch with only a padding mask."""
    first = encoder.layers[0]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (src, *first.parameters())):
        return False
    return (
        src.device.type == DEVICE_TYPE
        and src.dim() == 3
        and getattr(encoder, "use_nested_tensor", False)  # files of older torch versions have none
        and not first.training
        and _fast
        and not torch.is_autocast_enabled(DEVICE_TYPE)
    )


def _without_padding(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(stock)
    def forward(
        self: Any,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        if mask is not None or src_key_padding_mask is None or not _leaves_padding_out(self, src):
            return stock(self, src, mask, src_key_padding_mask, is_causal)
        name = "src_key_padding_mask"
        padding = F._canonical_mask(src_key_padding_mask, name, None, "", src.dtype)
        assert padding is not None  # it is None for None
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=None, is_causal=False, src_key_padding_mask=padding)
        there = padding.eq(0)
        first = there.int().cumprod(1, dtype=torch.int32)
        behind = (first == there).all()  # where all rows have padding
        output = torch.where(there[..., None] | ~behind, output, 0.0)
        return output if self.norm is None else self.norm(output)

    return forward


def _set_fast(stock: Callable[[bool], None] | None, value: bool) -> None:
    global _fast
    _fast = value
    if stock is not None:
        stock(value)


def install(*_: object) -> None:
    """Trust the caller's description of a mask, and skip padding where a GPU does."""
    switch = torch.backends.mha
    stock = switch.set_fastpath_enabled if switch.get_fastpath_enabled() else None
    switch.set_fastpath_enabled = functools.partial(_set_fast, stock)
    transformer._detect_is_causal_mask = _is_causal
    encoder = transformer.TransformerEncoder
    encoder.forward = _without_padding(encoder.forward)  # type: ignore[method-assign]
