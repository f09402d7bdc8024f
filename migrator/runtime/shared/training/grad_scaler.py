"""GradScaler: bfloat16 has the range of float32, and needs none; checkpoints have one."""

from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """A scaler that is switched off, and keeps the state of one that isn't: a GPU goes on with it.

    The arguments are those of ``torch.cuda.amp.GradScaler``.
    """

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__("cpu", enabled=False)
        self._kept: dict[str, Any] = {
            "scale": init_scale, "growth_factor": growth_factor, "backoff_factor": backoff_factor,
            "growth_interval": growth_interval, "_growth_tracker": 0,
        } if enabled else {}  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """What was loaded, or the state of a new scaler; empty if it is off on a GPU, too."""
        return dict(self._kept)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a state for `state_dict`."""
        if self._kept and state_dict:
            self._kept = dict(state_dict)
