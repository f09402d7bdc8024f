"""The state of running calls of transformers' `generate`."""

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Target:
    """What a target knows of calls that come again.

    Within ``hurried`` what comes is compiled at once: before its code has run once, if it may trust
    transformers' models, and without a look at what may have changed, if it is alone with them.
    Within ``as_it_is`` it is not compiled. ``in_thread`` lets another thread use the device.
    ``boundary`` ends each call of a model. ``of_model`` makes one program of a
    function that calls a model. Within ``apart`` nothing is on the device but what models are
    given, or is within ``there``.
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


class Call:
    """A call of `generate` that runs, with ids on the CPU where they could be brought there."""

    def __init__(self, hurry: Callable[..., None], on_cpu: bool, alone: bool) -> None:
        self.hurry, self.on_cpu = hurry, on_cpu
        self.alone = alone  # no code of the program runs in it
        self.cache: Any = None  # of fixed length, if it has one
        self.layers: list[Any] = []  # of it, with what the decoder has seen of its own
        self.makes_masks = False  # whether the model makes the masks of the cache's length
        self._mask: Any = None

    def begin(self, model: Any, settings: Any, cache: Any, library: Any) -> None:
        """It has a cache of fixed length."""
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
        """The programs will be used again. A call adds hooks that record the modules inside."""
        recording = (settings, model.config)
        trusting = not any(x.output_attentions or x.output_hidden_states for x in recording)
        self.hurry(trusting, self.alone and _is_theirs(model))

    def mask(self, mask: Any, ids: Any) -> Any:
        """That of the prompt, and of all tokens that may come, on the device.

        There is always one: without, some models make one of the length so far.
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
        self.running: list[Call] = []

    @property
    def last(self) -> Call | None:
        return self.running[-1] if self.running else None


calls = Calls()
