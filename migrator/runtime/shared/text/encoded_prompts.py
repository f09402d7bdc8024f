"""Pads the token ids that transformers' `generate` encodes to a power of two.

They are padded on the right, and masked in the encoder and in cross-attention. The masks are
created here: a model that creates its own tests for padding, and would be compiled once more.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..device import DEVICE_TYPE
from .static_caches import bucket


def encoding(stock: Callable[..., Any], is_moved: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    """How `generate` encodes; ``is_moved`` tells whether its prompts were moved to the CPU."""

    @functools.wraps(stock)
    def encode(
        self: Any, inputs_tensor: Any, model_kwargs: Any, model_input_name: Any,
        generation_config: Any,
    ) -> Any:  # fmt: skip
        inputs, given, settings = inputs_tensor, model_kwargs, generation_config
        if self.device.type != DEVICE_TYPE or not is_moved(self, settings):
            return stock(self, inputs, given, model_input_name, settings)
        mask, of_decoder = given.get("attention_mask"), None
        if _can_pad(self, inputs, mask, settings):
            inputs, mask, of_decoder = _padded(self, inputs, mask)
        moved = {name: _to(value, self.device) for name, value in given.items()}
        moved["attention_mask"] = _to(mask, self.device)
        encoded = stock(self, _to(inputs, self.device), moved, model_input_name, settings)
        given["encoder_outputs"] = encoded["encoder_outputs"]
        if mask is not None:
            of_decoder = moved["attention_mask"] if of_decoder is None else of_decoder
            given["attention_mask"] = of_decoder.to(self.device)
        return given

    return encode


def _to(value: Any, device: Any) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _can_pad(model: Any, inputs: Any, mask: Any, settings: Any) -> bool:
    return (
        inputs.ndim == 2
        and not inputs.is_floating_point()
        and (mask is None or mask.ndim == 2)
        and hasattr(sys.modules[type(model).__module__], "create_bidirectional_mask")
        and not (settings.output_attentions or settings.output_hidden_states)
    )


def _padded(model: Any, ids: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Token ids, and the masks of the encoder and for the decoder's cross-attention."""
    encoder = model.get_encoder().config
    batch, length = ids.shape
    more = bucket(length, getattr(encoder, "max_position_embeddings", None)) - length
    mask = torch.ones_like(ids) if mask is None else mask
    ids = torch.nn.functional.pad(ids, (0, more), value=model.config.pad_token_id or 0)
    mask = torch.nn.functional.pad(mask, (0, more))
    make = sys.modules[type(model).__module__].create_bidirectional_mask

    def of(config: Any, queries: int) -> Any:
        keys = torch.empty(batch, ids.shape[1], 0, dtype=model.dtype)
        return make(
            config=config, inputs_embeds=keys[:, :queries], attention_mask=mask,
            encoder_hidden_states=keys, allow_is_bidirectional_skip=False,
        )  # fmt: skip

    return ids, of(encoder, ids.shape[1]), of(model.get_decoder().config, 1)
