"""transformers' `generate`: one program for all tokens, instead of one for each length.

By default the cache, the token ids and the masks grow with each token, and each new shape is
compiled. Here the cache is transformers' own `StaticCache`, and its length a power of two
(static_caches.py). The prompt is padded on the right to a power of two: its own tokens don't attend
to the padding, whose entries in the cache are overwritten before later tokens could. Token ids stay
on the CPU, and with them logits processors, sampling and stopping criteria. A token's program gets
the id and the position, creates its mask, and returns the logits.
"""

import contextlib
import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..device import DEVICE_TYPE
from ..frameworks.import_hooks import when_imported
from . import greedy
from .custom_processors import stay_on_cpu
from .encoded_prompts import encoding
from .generate_calls import GenerateCall, GenerateTarget, calls
from .model_inputs import filling, stepping
from .static_caches import make, why_growing, writing

_ON_CPU = (
    "inputs", "input_ids", "attention_mask", "position_ids", "decoder_input_ids",
    "decoder_attention_mask", "input_features", "labels",
)  # fmt: skip
_THEIR_OWN = ("logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn")
_OTHERS = (
    "assistant_model", "custom_generate", "negative_prompt_ids", "negative_prompt_attention_mask",
)  # fmt: skip

_told: set[str] = set()


def _tell(why: str) -> None:
    """Warn once why a call of `generate` is slow."""
    if why not in _told:
        _told.add(why)
        warnings.warn(
            f"generate() is slow, because {why}: each new length is compiled, "
            "or runs operator by operator",
            stacklevel=4,
        )


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE


def _to(value: Any, device: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), value)


def _on_cpu(model: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The arguments of `generate` with token ids on the CPU; None if they have to stay."""
    named = dict(zip(("inputs",), args, strict=False)) | kwargs
    moved = [name for name, value in named.items() if _on_device(value)]
    if not moved or model.device.type != DEVICE_TYPE:
        return None
    theirs = [name for name in (*_OTHERS, *moved) if named.get(name) is not None]
    theirs = [name for name in theirs if name not in _ON_CPU]
    theirs += [name for name in _THEIR_OWN if not stay_on_cpu(named.get(name))]
    if len(args) > 2 or theirs:
        _tell(f"token ids stay on the device with {theirs[0] if theirs else 'its arguments'}")
        return None
    named |= {name: named[name].cpu() for name in moved}
    return ((named.pop("inputs"), *args[1:]) if args else ()), named


def _has_moved(model: Any, settings: Any) -> bool:
    """Whether the prompts of the running call are on the CPU; then its programs are used again."""
    call = calls.last
    if call is None or not call.on_cpu:
        return False
    call.hasten(model, settings)
    return True


def _generating(stock: Callable[..., Any], target: GenerateTarget) -> Callable[..., Any]:
    """`generate`, with token ids on the CPU."""

    @functools.wraps(stock)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(target.in_thread())
            if self.device.type == DEVICE_TYPE:
                target.boundary()  # operations recorded so far don't belong to the prompt's program
            given = _on_cpu(self, args, kwargs)

            def hurry(*how: bool) -> None:
                stack.enter_context(target.hurried(*how))

            theirs = [name for name in (*_THEIR_OWN, "streamer") if kwargs.get(name) is not None]
            calls.running.append(
                GenerateCall(hurry, given is not None, not theirs and len(args) < 2)
            )
            stack.callback(calls.running.pop)
            if given is None:
                return stock(self, *args, **kwargs)
            return _to(stock(self, *given[0], **given[1]), self.device)

    return generate


def _choosing(stock: Callable[..., Any], target: GenerateTarget) -> Callable[..., Any]:
    """The loop of `generate`: it works on the CPU between calls of the model."""

    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def sample(*args: Any, **kwargs: Any) -> Any:
        call = calls.last
        is_apart = call is not None and call.on_cpu and call.makes_masks and call.alone
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        with target.apart() if is_apart else contextlib.nullcontext():
            if greedy.is_plain(args[0], bound.arguments):
                return greedy.text(args[0], bound.arguments, target)
            return stock(*args, **kwargs)

    return sample


def _caching(stock: Callable[..., Any], library: Any) -> Callable[..., Any]:
    """How `generate` creates its cache: with a fixed length."""

    @functools.wraps(stock)
    def prepare(
        self: Any, settings: Any, given: Any, mode: Any, batch: int, length: int, *rest: Any
    ) -> Any:
        if self.device.type != DEVICE_TYPE or given.get("cache") is not None:
            return stock(self, settings, given, mode, batch, length, *rest)
        why = why_growing(self, settings, mode)
        cache = None if why else make(library, self, settings, given, batch, length)
        if cache is None:
            _tell(why or f"the layers of {type(self).__name__} keep more than keys and values")
            return stock(self, settings, given, mode, batch, length, *rest)
        given["cache"] = cache
        if calls.last is not None:
            calls.last.begin(self, settings, cache, library)
        return None

    return prepare


def _following(stock: Callable[..., Any], target: GenerateTarget) -> Callable[..., Any]:
    """What `generate` does after each call of the model: it reads the last token's logits."""

    @functools.wraps(stock)
    def update(self: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        call = calls.last
        if call is not None and call.cache is not None and "cache" in outputs:
            outputs["cache"] = call.cache  # a program returns another object with the same tensors
        if outputs.logits is None:
            pass  # greedy.py has used them already
        elif self.device.type == DEVICE_TYPE and call is not None and call.on_cpu:
            if outputs.logits.shape[1] > 1:
                with target.there():
                    outputs.logits = outputs.logits[:, -1:]
            target.boundary()
            outputs.logits = target.to_cpu(outputs.logits)
        else:
            target.boundary()
        return stock(self, outputs, *args, **kwargs)

    return update


def _unknown(stock: Callable[..., Any], version: str) -> Callable[..., Any]:
    """The parts of `generate` that this version of transformers lacks or has changed."""

    @functools.wraps(stock)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == DEVICE_TYPE:
            _tell(f"this is for transformers 5.24, and {version} is different")
        return stock(self, *args, **kwargs)

    return generate


def install(target: GenerateTarget) -> None:
    """Replace the places where transformers creates its cache and calls the model."""

    def mend(library: Any) -> None:
        mixin = library.GenerationMixin
        if not (hasattr(library, "move_to_device") and hasattr(mixin, "_prefill")):
            mixin.generate = _unknown(mixin.generate, sys.modules["transformers"].__version__)
            return
        mixin.generate = _generating(mixin.generate, target)
        mixin.prepare_inputs_for_generation = stepping(mixin.prepare_inputs_for_generation, target)
        mixin._prepare_cache_for_generation = _caching(mixin._prepare_cache_for_generation, library)
        mixin._prepare_text_encoder_decoder_kwargs_for_generation = encoding(
            mixin._prepare_text_encoder_decoder_kwargs_for_generation, _has_moved
        )
        mixin._prefill = filling(mixin._prefill, target)
        layer = sys.modules["transformers.cache_utils"].StaticLayer
        layer.update = writing(layer.update)
        mixin._sample = _choosing(mixin._sample, target)
        stock = mixin._update_model_kwargs_for_generation
        mixin._update_model_kwargs_for_generation = _following(stock, target)

    when_imported("transformers.generation.utils", mend)
