"""`clip_grad_norm_` is torch's own."""

from typing import Any

import torch
import torch.nn.utils.clip_grad
from torch import nn

from ..device import DEVICE_TYPE


def install() -> None:
    """Undo what importing torch_xla 2.9 does, and allow `foreach=True`, as on CUDA.

    It replaces `nn.utils.clip_grad_norm_` by a version for all devices that refuses `foreach=True`
    and returns a device tensor if there are no gradients. torch's works: it reads nothing back.
    """
    replacement = nn.utils.clip_grad_norm_
    original = getattr(replacement, "_orig", None)
    if original is not None:
        nn.utils.clip_grad_norm_ = original
        # For code that imported the replacement by name: it finds itself in its own module.
        replacement.__code__ = _call_the_original.__code__
    clip_grad: Any = torch.nn.utils.clip_grad
    has_foreach = clip_grad._device_has_foreach_support

    def device_has_foreach(device: torch.device) -> bool:
        # torch 2.9 refuses `foreach=True` here, although its general foreach functions work.
        return device.type == DEVICE_TYPE or bool(has_foreach(device))

    clip_grad._device_has_foreach_support = device_has_foreach


# The same parameters as the function that gets this code.
def _call_the_original(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):  # type: ignore[no-untyped-def]
    return clip_grad_norm_._orig(parameters, max_norm, norm_type, error_if_nonfinite, foreach)  # type: ignore[name-defined]  # noqa: F821
