"""The state of running calls of transformers' `generate`."""

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class GenerateTarget:
    """How a target runs the calls of a model.

    Within ``hurried`` they are compiled at once. Its arguments: whether that may happen before the
    code has run once, and whether only transformers' code runs, so that nothing has to be checked
    for changes. Within ``as_it_is`` nothing is compiled. ``in_thread`` lets another thread use the
    device. ``boundary`` ends what is recorded of a call. ``of_model`` turns a function that calls a
    model into one program. Within ``apart`` only models use the device, and code in ``there``.
    """

    hurried: Callable[..., AbstractContextManager[None]]
    as_it_is: Callable[[], AbstractContextManager[None]]
    in_thread: Callable[[], AbstractContextManager[None]]
    apart: Callable[[], AbstractContextManager[None]]
    there: Callable[[], AbstractContextManager[None]]
    boundary: Callable[[], None]
    of_model: Callable[[Any, Callable[..., Any]], Callable[..., Any]]
    to_device: Callable[[torch.Tensor], torch.Tensor]
    to_cpu: Callable[[torch.Tensor], torch.Tensor]


class GenerateCall:
    """A running call of `generate`; ``on_cpu``: its token ids were moved to the CPU."""

    def __init__(self, hurry: Callable[..., None], on_cpu: bool, alone: bool) -> None:
        self.hurry, self.on_cpu = hurry, on_cpu
        self.alone = alone  # none of the program's own code runs in it
        self.cache: Any = None  # of fixed length, if it has one
        self.layers: list[Any] = []  # the cache's, for the decoder's self-attention
        self.makes_masks = False  # whether the model creates masks as long as the cache
        self._mask: Any = None

    def begin(self, model: Any, settings: Any, cache: Any, library: Any) -> None:
        """Start with a cache of fixed length."""
        self.cache, kind = cache, type(model)
        self.layers = getattr(cache, "self_attention_cache", cache).layers
        self.hasten(model, settings)
        self.alone &= _is_theirs(model)
        mixin, module = library.GenerationMixin, sys.modules[kind.__module__]
        self.makes_masks = (
            kind.prepare_inputs_for_generation is mixin.prepare_inputs_for_generation
            and not hasattr(model, "create_masks_for_generate")
            and hasattr(module, "create_causal_mask")
        )

    def fills(self, given: Any) -> bool:
        """Whether a prompt's cache belongs to this call."""
        return self.cache is not None and given.get("cache") is self.cache

    def hasten(self, model: Any, settings: Any) -> None:
        """Compile at once; but first run code whose inner outputs are recorded, by hooks."""
        recording = (settings, model.config)
        trusting = not any(x.output_attentions or x.output_hidden_states for x in recording)
        self.hurry(trusting, self.alone and _is_theirs(model))

    def mask(self, mask: Any, ids: Any) -> Any:
        """The mask of the prompt and of all tokens that may follow, on the device.

        Always given: otherwise some models create one of the present length.
        """
        if self._mask is None:
            mask = torch.ones_like(ids) if mask is None else mask
            more = self.layers[0].max_cache_len - mask.shape[-1]
            whole = torch.nn.functional.pad(mask, (0, more), value=1)
            self._mask = whole.to(self.layers[0].device)
        return self._mask


def _is_theirs(value: Any) -> bool:
    return type(value).__module__.startswith("transformers.")


class Calls(threading.local):
    """The calls running in this thread; they may be nested, as in a streamer."""

    def __init__(self) -> None:
        self.running: list[GenerateCall] = []

    @property
    def last(self) -> GenerateCall | None:
        return self.running[-1] if self.running else None


calls = Calls()
