"""Accelerate and Lightning, which know torch_xla: what they get wrong of it."""

from typing import Any

import torch_xla

from . import lightning_tpu
from .imported import when_imported

NEEDED_BY = "accelerate transformers trl lightning pytorch_lightning lightning_fabric"


def _can_stay_on_cpu(state: Any) -> None:
    """accelerate 1.15 takes torch_xla wherever it is installed, also with `cpu=True`."""
    stock = state.PartialState._prepare_backend

    def backend(self: Any, cpu: bool = False, *args: Any, **kwargs: Any) -> Any:
        if not cpu:
            return stock(self, cpu, *args, **kwargs)
        asked, state.is_torch_xla_available = state.is_torch_xla_available, lambda *_, **__: False
        try:
            return stock(self, cpu, *args, **kwargs)
        finally:
            state.is_torch_xla_available = asked

    state.PartialState._prepare_backend = backend


def install() -> None:
    """Mend them when they are imported."""
    when_imported("accelerate.state", _can_stay_on_cpu)
    lightning_tpu.install(torch_xla.sync)
