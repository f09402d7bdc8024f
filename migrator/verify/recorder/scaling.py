"""Loss scaling, which a target without float16 doesn't need."""

from __future__ import annotations

from typing import Any

import torch

# torch starts at 65,536, and skips the first steps if gradients overflow. The migrated program
# takes all steps.
_FIRST = 1024.0


def install() -> None:
    """Start scalers low, and remember the original of scaled values."""
    made = torch.amp.GradScaler.__init__

    def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
        made(scaler, *args, **kwargs)
        if scaler.is_enabled():
            scaler._init_scale = min(scaler._init_scale, _FIRST)
            _follow(type(scaler))

    torch.amp.GradScaler.__init__ = init  # type: ignore[method-assign]


def _follow(kind: Any) -> None:
    """Follow scalers of this class; ShardedGradScaler, for example, has its own method."""
    scale = kind.scale
    if hasattr(scale, "_followed"):
        return

    def scaled(scaler: Any, outputs: Any) -> Any:
        result = scale(scaler, outputs)
        if isinstance(result, torch.Tensor) and result is not outputs:
            result._before_scaling = outputs  # type: ignore[attr-defined]
        return result

    scaled._followed = True  # type: ignore[attr-defined]
    kind.scale = scaled


def before_scaling(loss: torch.Tensor) -> torch.Tensor:
    return getattr(loss, "_before_scaling", loss)
