"""Caches of a fixed length for transformers' `generate`, for models known to work with one.

Layers with a sliding window keep all tokens, too; the mask limits attention to the window. A cache
that rolls would need another program for each token until it is full. The encoder's keys and
values, for cross-attention, are a cache of their own.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..device import DEVICE_TYPE

_LEAST = 64  # tokens: shorter prompts and caches aren't faster
_MODES = ("greedy_search", "sample", "beam_search", "beam_sample")


class _Filled(int):
    """Whether a cache has the encoder's keys and values: all of them, or none."""

    def get(self, layer: int, default: Any = None) -> bool:
        return bool(self)

    def __setitem__(self, layer: int, value: bool) -> None:
        """The model sets it for each layer while it is traced; `generate` sets it for the cache."""


EMPTY, FILLED = _Filled(False), _Filled(True)


def bucket(length: int, limit: int | None) -> int:
    """The first power of two that isn't below ``length``; ``limit`` if that is less but enough."""
    power = max(_LEAST, 1 << (length - 1).bit_length())
    return power if limit is None else max(length, min(power, limit))


def why_growing(model: Any, settings: Any, mode: Any) -> str:
    """Why a call has no static cache; "" if it has one."""
    if settings.use_cache is False:
        return "use_cache=False recomputes all tokens for each"
    if settings.cache_implementation not in (None, "static"):
        return f"cache_implementation={settings.cache_implementation!r}"
    if getattr(mode, "value", mode) not in _MODES:
        return f"{getattr(mode, 'value', mode)} is not known here"
    if not model._can_compile_fullgraph or getattr(model.config, "alibi", False):
        return f"{type(model).__name__} is not known to work with a cache of a fixed length"
    return ""


def is_static(cache: Any) -> bool:
    """Whether it is a cache that `make` creates for a model without encoder."""
    return type(cache).__name__ == "StaticCache" and all(
        type(layer).__name__ == "StaticLayer" for layer in cache.layers
    )


def make(library: Any, model: Any, settings: Any, given: Any, batch: int, length: int) -> Any:
    """A cache for at least ``length`` tokens; None if the model's layers keep other state."""
    config = model.config.get_text_config(decoder=True)
    limit = getattr(config, "max_position_embeddings", None)
    lengths = [bucket(max(length, settings.max_cache_len or 0), limit)]
    if model.config.is_encoder_decoder:
        lengths.append(given["encoder_outputs"][0].shape[1])
    caches = [library.StaticCache(config=config, max_cache_len=each) for each in lengths]
    for cache, each in zip(caches, lengths, strict=True):
        cache.layers = [_keeping_all(layer, each, config) for layer in cache.layers]
    if not all(map(is_static, caches)):
        return None
    whole = caches[0]
    if len(caches) == 2:
        whole = library.EncoderDecoderCache(*caches)
        whole.is_updated = EMPTY
    shape = model._get_static_cache_init_shape()
    if shape is not None and not torch.is_autocast_enabled(DEVICE_TYPE):
        copies = max(settings.num_beams, settings.num_return_sequences)
        for cache in caches:
            cache.early_initialization(batch * copies, *shape, model.dtype, model.device)
    return whole


@contextlib.contextmanager
def empty(layers: list[Any]) -> Iterator[None]:
    """In this context, the layers count as empty: they get a prompt."""
    for layer in layers:
        layer.is_empty = True
    try:
        yield
    finally:
        for layer in layers:
            layer.is_empty = False


def writing(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`StaticLayer.update`, which copies each token to its index: a prompt needs just one copy."""

    @functools.wraps(stock)
    def update(self: Any, keys: torch.Tensor, values: torch.Tensor, *args: Any, **rest: Any) -> Any:
        if not getattr(self, "is_empty", False) or not self.is_initialized:
            return stock(self, keys, values, *args, **rest)
        length = keys.shape[-2]
        self.cumulative_length.add_(length)
        self.keys[:, :, :length] = keys
        self.values[:, :, :length] = values
        return self.keys, self.values

    return update


def _keeping_all(layer: Any, length: int, config: Any) -> Any:
    """A layer that keeps all tokens, instead of those in its window."""
    in_chunks = getattr(config, "attention_chunk_size", None)
    if type(layer).__name__ != "StaticSlidingWindowLayer" or in_chunks:
        return layer
    kept = type(layer).__mro__[1](max_cache_len=length)
    kept.is_sliding = True
    return kept
