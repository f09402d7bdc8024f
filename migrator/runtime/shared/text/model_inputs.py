"""The inputs of a transformers model in `generate`: a padded prompt, then one token at a time."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from .generate_calls import GenerateCall, GenerateTarget, calls
from .static_caches import FILLED, bucket, empty, is_static

_PADDED = {"attention_mask", "position_ids", "cache", "use_cache", "logits_to_keep"}
_AS_GIVEN = {"cache", "use_cache", "logits_to_keep", "encoder_outputs"}
_STEP = {
    *_AS_GIVEN, "next_sequence_length", "is_first_iteration", "attention_mask", "position_ids",
    "decoder_attention_mask", "decoder_position_ids", "labels",
}  # fmt: skip


def filling(stock: Callable[..., Any], target: GenerateTarget) -> Callable[..., Any]:
    """The call of the model for the prompt, padded to a length that other prompts share.

    If the cache takes its dtype from this call, the call isn't compiled.
    """

    @functools.wraps(stock)
    def prefill(
        self: Any, ids: Any, settings: Any, given: Any, is_first_iteration: bool = True
    ) -> Any:
        with target.there():
            return fill(self, ids, settings, given, is_first_iteration)

    def fill(self: Any, ids: Any, settings: Any, given: Any, is_first_iteration: bool) -> Any:
        call = calls.last
        if call is None or not call.fills(given) or settings.prefill_chunk_size is not None:
            return stock(self, ids, settings, given, is_first_iteration)
        length, pads = ids.shape[1], _can_pad(settings, given)
        if pads:
            ids, given = _padded(ids, given, call.layers[0].max_cache_len)
        inputs = self.prepare_inputs_for_generation(
            ids, is_first_iteration=is_first_iteration, **given
        )
        known = call.layers[0].is_initialized
        with empty(call.layers), contextlib.nullcontext() if known else target.as_it_is():
            outputs = filled(self, inputs, ids.shape[1], length)
        for layer in call.layers if pads else ():
            layer.cumulative_length.copy_(torch.tensor(length))
        if self.config.is_encoder_decoder:
            call.cache.is_updated = FILLED
        return outputs

    return prefill


def filled(model: Any, inputs: Any, width: int, length: int) -> Any:
    """The model's result for a prompt of ``width`` tokens, of which the first ``length`` count."""
    return model(**inputs, return_dict=True)


def _padded(ids: Any, given: Any, limit: int) -> tuple[Any, Any]:
    """Pad token ids and inputs of the same length with their last value.

    So the largest position, which some models look for, stays the same.
    """
    length = ids.shape[1]
    more = bucket(length, limit) - length

    def padded(tensor: Any) -> Any:
        last = tensor[..., -1:].expand(*tensor.shape[:-1], more)
        return torch.cat([tensor, last], dim=-1)

    names = [name for name in ("attention_mask", "position_ids") if given.get(name) is not None]
    last = torch.tensor([length - 1], device=ids.device)
    changed = {name: padded(given[name]) for name in names}
    return padded(ids), {**given, **changed, "logits_to_keep": last}


def _can_pad(settings: Any, given: Any) -> bool:
    said = {name for name, value in given.items() if value is not None}
    return (
        is_static(given["cache"])
        and said <= _PADDED
        and given.get("logits_to_keep") == 1
        and not settings.output_attentions
        and not settings.output_hidden_states
    )


def can_step(call: GenerateCall, given: Any) -> bool:
    """Whether all inputs of the model for a token are known, and keep their shapes."""
    said = {name for name, value in given.items() if value is not None}
    return call.on_cpu and call.makes_masks and given.get("cache") is call.cache and said <= _STEP


def stepping(stock: Callable[..., Any], target: GenerateTarget) -> Callable[..., Any]:
    """The inputs for one token: its id, its position, and a mask of constant size."""

    @functools.wraps(stock)
    def prepare(self: Any, ids: Any, *args: Any, **given: Any) -> Any:
        call = calls.last
        said = {name for name, value in given.items() if value is not None}
        if (
            call is None
            or not can_step(call, given)
            or given.get("next_sequence_length") != 1
            or given.get("is_first_iteration")
            or args
        ):
            with target.there():
                return stock(self, ids, *args, **given)
        of_decoder = "decoder_" * self.config.is_encoder_decoder
        inputs = {name: given[name] for name in sorted(said & _AS_GIVEN)}
        inputs[f"{of_decoder}input_ids"] = target.to_device(ids[:, -1:])
        for name in said & {f"{of_decoder}position_ids"}:
            inputs[name] = target.to_device(given[name][..., -1:])
        mask = f"{of_decoder}attention_mask"
        with target.there():
            inputs[mask] = call.mask(given.get(mask), ids)
        for name in said & {"attention_mask"} - {mask}:
            inputs[name] = given[name]  # of the encoder
        return inputs

    return prepare
