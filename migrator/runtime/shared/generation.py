"""transformers' `generate`: one program for all tokens, in place of one for each length.

As it stands the cache grows with each token, and so do the token ids, the masks and what is
computed from them: shapes that are compiled anew each time. Here the cache is transformers' own
`StaticCache`, of a length that is a power of two. The prompt is padded on the right to a power of
two, behind everything that counts: its own tokens never look there, and what is in the cache of it
is written over before a later token looks. The token ids stay on the CPU, and with them masks,
logits processors, sampling and stopping criteria; transformers 5.24 moves what a model needs.
"""

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .device import DEVICE_TYPE
from .imported import when_imported

NEEDED_BY = "transformers trl"

_LEAST = 64  # tokens: shorter prompts and caches are no faster
_MODES = ("greedy_search", "sample", "beam_search", "beam_sample")
_ON_CPU = ("inputs", "input_ids", "attention_mask", "position_ids")
_PADDED = {"attention_mask", "position_ids", "cache", "use_cache", "logits_to_keep"}
_THEIR_OWN = (
    "logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "assistant_model",
    "custom_generate", "negative_prompt_ids", "negative_prompt_attention_mask",
)  # fmt: skip

Context = Callable[[], AbstractContextManager[None]]

_told: set[str] = set()
_when_static: list[Callable[[], None]] = []  # for each `generate` that runs


def _tell(why: str) -> None:
    """Say once why a call of `generate` is slow."""
    if why not in _told:
        _told.add(why)
        warnings.warn(
            f"generate() is slow, since {why}: what grows with each token is compiled anew each "
            "time, or runs operator by operator",
            stacklevel=4,
        )


def _bucket(length: int, limit: int | None) -> int:
    """The power of two from ``length`` on, and no more than ``limit`` where that is enough."""
    power = max(_LEAST, 1 << (length - 1).bit_length())
    return power if limit is None else max(length, min(power, limit))


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE


def _to(value: Any, device: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), value)


def _on_cpu(model: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The arguments of `generate` with token ids on the CPU; None where they stay."""
    named = dict(zip(("inputs",), args, strict=False)) | kwargs
    moved = [name for name, value in named.items() if _on_device(value)]
    if not moved or model.device.type != DEVICE_TYPE or model.config.is_encoder_decoder:
        return None
    theirs = [name for name in (*_THEIR_OWN, *moved) if named.get(name) is not None]
    theirs = [name for name in theirs if name not in _ON_CPU]
    if len(args) > 2 or theirs:
        _tell(f"token ids stay on the device with {theirs[0] if theirs else 'its arguments'}")
        return None
    named |= {name: named[name].cpu() for name in moved}
    return ((named.pop("inputs"), *args[1:]) if args else ()), named


def _generating(stock: Callable[..., Any], hurried: Context) -> Callable[..., Any]:
    """`generate`, with token ids on the CPU."""

    @functools.wraps(stock)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            _when_static.append(lambda: stack.enter_context(hurried()))
            stack.callback(_when_static.pop)
            given = _on_cpu(self, args, kwargs)
            if given is None:
                return stock(self, *args, **kwargs)
            return _to(stock(self, *given[0], **given[1]), self.device)

    return generate


def _why_growing(model: Any, settings: Any, mode: Any) -> str:
    """Why a call has no static cache, "" where it has one."""
    if settings.use_cache is False:
        return "use_cache=False computes all tokens anew for each"
    if settings.cache_implementation not in (None, "static"):
        return f"cache_implementation={settings.cache_implementation!r}"
    if getattr(mode, "value", mode) not in _MODES:
        return f"{getattr(mode, 'value', mode)} is not known here"
    if not model._can_compile_fullgraph or model.config.is_encoder_decoder:
        return f"{type(model).__name__} is not known to work with a cache of a fixed length"
    return ""


def _is_cast(model: Any) -> bool:
    """Whether autocast may give keys and values another type than the model's."""
    probe = torch.zeros(1, 1, dtype=model.dtype, device=model.device)
    return bool(torch.nn.functional.linear(probe, probe).dtype != model.dtype)


def _caching(stock: Callable[..., Any], library: Any) -> Callable[..., Any]:
    """How `generate` makes its cache: of a fixed length."""

    @functools.wraps(stock)
    def prepare(
        self: Any, settings: Any, given: Any, mode: Any, batch: int, length: int, *rest: Any
    ) -> Any:
        if self.device.type != DEVICE_TYPE or given.get("cache") is not None:
            return stock(self, settings, given, mode, batch, length, *rest)
        why = _why_growing(self, settings, mode)
        if not why:
            config = self.config.get_text_config(decoder=True)
            length = max(length, settings.max_cache_len or 0)
            limit = getattr(config, "max_position_embeddings", None)
            cache = library.StaticCache(config=config, max_cache_len=_bucket(length, limit))
            if all(type(layer).__name__ == "StaticLayer" for layer in cache.layers):
                shape = self._get_static_cache_init_shape()
                if shape is not None and not _is_cast(self):
                    copies = max(settings.num_beams, settings.num_return_sequences)
                    cache.early_initialization(batch * copies, *shape, self.dtype, self.device)
                given["cache"] = cache
                for hurry in _when_static[-1:]:
                    hurry()
                return None
        _tell(why or f"the layers of {type(self).__name__} keep other things than keys and values")
        return stock(self, settings, given, mode, batch, length, *rest)

    return prepare


def _can_pad(settings: Any, given: Any) -> bool:
    said = {name for name, value in given.items() if value is not None}
    cache = given.get("cache")
    return (
        type(cache).__name__ == "StaticCache"
        and said <= _PADDED
        and given.get("logits_to_keep") == 1
        and settings.prefill_chunk_size is None
        and not settings.output_attentions
        and not settings.output_hidden_states
        and all(type(layer).__name__ == "StaticLayer" for layer in cache.layers)
    )


def _filling(stock: Callable[..., Any], as_it_is: Context) -> Callable[..., Any]:
    """The call of the model for the prompt, padded to a length that comes again.

    Where its cache is still to be made, by the types that it finds, it is not compiled.
    """

    @functools.wraps(stock)
    def prefill(self: Any, ids: Any, settings: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
        fits = self.device.type == DEVICE_TYPE and _can_pad(settings, given)
        if not fits or int(given["cache"].get_seq_length()):
            return stock(self, ids, settings, given, *args, **kwargs)
        cache, length = given["cache"], ids.shape[1]
        more = _bucket(length, cache.get_max_length()) - length

        def padded(tensor: Any) -> Any:
            """By what is last: a position that some models look for the largest of stays it."""
            last = tensor[..., -1:].expand(*tensor.shape[:-1], more)
            return torch.cat([tensor, last], dim=-1)

        names = [name for name in ("attention_mask", "position_ids") if given.get(name) is not None]
        last = torch.tensor([length - 1], device=ids.device)
        changed = {name: padded(given[name]) for name in names} | {"logits_to_keep": last}
        is_made = cache.layers[0].is_initialized
        with contextlib.nullcontext() if is_made else as_it_is():
            outputs = stock(self, padded(ids), settings, {**given, **changed}, *args, **kwargs)
        for layer in cache.layers:
            layer.cumulative_length.copy_(torch.tensor(length))
        return outputs

    return prefill


def _following(stock: Callable[..., Any], boundary: Callable[[], None]) -> Callable[..., Any]:
    """What `generate` does behind each call of the model."""

    @functools.wraps(stock)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        boundary()
        return stock(self, *args, **kwargs)

    return update


def _unknown(stock: Callable[..., Any], version: str) -> Callable[..., Any]:
    """`generate` of a transformers that does other things."""

    @functools.wraps(stock)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == DEVICE_TYPE:
            _tell(f"this is known of transformers 5.24, and {version} does other things")
        return stock(self, *args, **kwargs)

    return generate


def install(boundary: Callable[[], None], hurried: Context, as_it_is: Context) -> None:
    """Take over where transformers makes its cache, and calls the model.

    ``boundary`` ends each call; within ``hurried`` what comes is compiled at once, within
    ``as_it_is`` it is not compiled.
    """

    def mend(library: Any) -> None:
        mixin = library.GenerationMixin
        if not (hasattr(library, "move_to_device") and hasattr(mixin, "_prefill")):
            mixin.generate = _unknown(mixin.generate, sys.modules["transformers"].__version__)
            return
        mixin.generate = _generating(mixin.generate, hurried)
        mixin._prepare_cache_for_generation = _caching(mixin._prepare_cache_for_generation, library)
        mixin._prefill = _filling(mixin._prefill, as_it_is)
        stock = mixin._update_model_kwargs_for_generation
        mixin._update_model_kwargs_for_generation = _following(stock, boundary)

    when_imported("transformers.generation.utils", mend)
