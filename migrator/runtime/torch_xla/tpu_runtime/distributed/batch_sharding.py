"""Batches for a model on several devices."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..device import DEVICE_TYPE, say


def move_batch(module: nn.Module, values: Any) -> Any:
    """Move batches on the CPU to the model's device, like torch's classes."""
    first = next(iter(module.parameters()), None)
    if first is None or first.device.type != DEVICE_TYPE:
        return values
    return tree_map_only(Tensor, lambda tensor: tensor.to(first.device), values)


def note_batch(values: tuple[Any, ...], words: Callable[[int], str]) -> None:
    """Print once how large the batches are."""
    batch = next((v for v in values if isinstance(v, Tensor) and v.dim()), None)
    if batch is not None:
        say(words(batch.shape[0]))
