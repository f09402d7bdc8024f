"""`torch.utils.checkpoint`, both kinds, for device tensors.

torch 2.9 looks for a module `torch.xla`, which torch_xla 2.9 lacks, and raises. torch_xla's own
`checkpoint` only supports `use_reentrant=True`; that is used here, and for `use_reentrant=False`
torch's, extended by the device's random numbers and autocast. Both separate the second
forward pass by a barrier: otherwise XLA merges it with the first, and keeps the activations.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint
import torch_xla.core.xla_model as xm
import torch_xla.utils.checkpoint
from torch import nn

from ..device import DEVICE_TYPE

_theirs: Any = torch.utils.checkpoint


def _on_device(values: tuple[Any, ...]) -> list[torch.Tensor]:
    return [v for v in values if isinstance(v, torch.Tensor) and v.device.type == DEVICE_TYPE]


class _Reentrant:
    """Replaces torch's `CheckpointFunction`."""

    original: Any = _theirs.CheckpointFunction

    @classmethod
    def apply(cls, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        on_device = bool(_on_device(args))
        chosen = torch_xla.utils.checkpoint.CheckpointFunction if on_device else cls.original
        return chosen.apply(function, preserve_rng_state, *args)


@contextlib.contextmanager
def _as_in_the_first_pass(seed: int | None, autocast: dict[str, Any]) -> Iterator[None]:
    """Use the first pass's random numbers on the device, if ``seed`` is given, and its autocast."""
    now = xm.get_rng_state()
    if seed is not None:
        xm.set_rng_state(seed)
    try:
        with torch.autocast(DEVICE_TYPE, **autocast):
            yield
    finally:
        if seed is not None:
            xm.set_rng_state(now)


def _without_reentrant(
    function: Callable[..., Any], preserve_rng_state: bool, *rest: Any, **kwargs: Any
) -> Iterator[None]:
    """Replaces torch's generator: runs before and after the first forward pass."""
    if not (_on_device(rest) or _on_device(tuple(kwargs.values()))):
        yield from _torch_without_reentrant(function, preserve_rng_state, *rest, **kwargs)
        return
    seed = xm.get_rng_state() if preserve_rng_state else None
    autocast = {
        "enabled": torch.is_autocast_enabled(DEVICE_TYPE),
        "dtype": torch.get_autocast_dtype(DEVICE_TYPE),
        "cache_enabled": torch.is_autocast_cache_enabled(),
    }
    owner = getattr(function, "__self__", function)
    weights = list(owner.parameters()) if isinstance(owner, nn.Module) else []

    def again(*args: Any, **kwargs: Any) -> Any:
        xm.optimization_barrier_(_on_device((*args, *kwargs.values(), *weights)))
        with _as_in_the_first_pass(seed, autocast):
            return function(*args, **kwargs)

    yield from _torch_without_reentrant(again, preserve_rng_state, *rest, **kwargs)


_torch_without_reentrant: Callable[..., Iterator[None]] = (
    _theirs._checkpoint_without_reentrant_generator
)
_torch_device_type: Callable[..., str] = _theirs._infer_device_type


def _device_type_with_a_module(*args: Any) -> str:
    """Replaces torch's; the code above does everything that XLA needs of its device handling."""
    found = _torch_device_type(*args)
    return "cpu" if found == DEVICE_TYPE else found


def install() -> None:
    """Replace the parts of `torch.utils.checkpoint`, unless torch has a module for the device.

    The functions that scripts import by name, `checkpoint` and `checkpoint_sequential`, stay.
    """
    if hasattr(torch, DEVICE_TYPE):
        return
    _theirs.CheckpointFunction = _Reentrant
    _theirs._checkpoint_without_reentrant_generator = _without_reentrant
    _theirs._infer_device_type = _device_type_with_a_module
    # `torch.distributed._composable.checkpoint` has the generator under its own name.
    name = "torch.distributed._composable.checkpoint_activation"
    composable: Any = importlib.import_module(name)
    composable._checkpoint_without_reentrant_generator = _without_reentrant
