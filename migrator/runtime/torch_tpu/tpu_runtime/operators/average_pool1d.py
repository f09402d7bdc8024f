"""Average pooling over one dimension: torch_tpu 0.2.0 computes it, but without a gradient.

Layers before such a layer would silently not be trained. With two dimensions, one of them of
size one, there is a gradient.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F

_Size = int | tuple[int, ...] | list[int]


def install() -> None:
    F.avg_pool1d = torch.avg_pool1d = _avg_pool1d(F.avg_pool1d)


def _avg_pool1d(original: Any) -> Any:
    @functools.wraps(original)
    def avg_pool1d(
        input: torch.Tensor,
        kernel_size: _Size,
        stride: _Size | None = None,
        padding: _Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> torch.Tensor:
        if input.device.type != "tpu":
            stride = () if stride is None else stride
            return original(input, kernel_size, stride, padding, ceil_mode, count_include_pad)  # type: ignore[no-any-return]
        size, step = _one(kernel_size), _one(stride if stride or stride == 0 else kernel_size)
        return F.avg_pool2d(
            input.unsqueeze(-2), (1, size), (1, step), (0, _one(padding)), ceil_mode,
            count_include_pad,
        ).squeeze(-2)  # fmt: skip

    return avg_pool1d


def _one(value: _Size) -> int:
    return value if isinstance(value, int) else value[0]
