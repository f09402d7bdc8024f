"""`n // 2.0` of whole numbers: torch_tpu 0.2.0 gives float64, where torch gives float32."""

import functools
from typing import Any

import torch


def install() -> None:
    torch.floor_divide = _divided(torch.floor_divide)
    for name in ("floor_divide", "__floordiv__", "__rfloordiv__"):
        setattr(torch.Tensor, name, _divided(getattr(torch.Tensor, name)))


def _divided(original: Any) -> Any:
    @functools.wraps(original)
    def divide(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        if not isinstance(result, torch.Tensor) or result.dtype != torch.float64 or options:
            return result
        return result.to(torch.result_type(*args)) if result.device.type == "tpu" else result

    return divide
