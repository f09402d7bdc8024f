"""Greedy text of transformers' `generate`: each token that is chosen stays on the device.

The next call of the model takes it there, so that the device does not wait for the host. The host
reads tokens some calls later. Where it then sees that all texts had ended, it drops what came
behind; that was computed in vain, and nobody was there to see it.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as of_torch

from .model_inputs import can_step
from .running_calls import Target, calls

EVERY = 8  # tokens between two looks

_SETTINGS = ("do_sample", "return_dict_in_generate", "is_assistant")
_CRITERIA = {"MaxLengthCriteria", "EosTokenCriteria"}
_MOVING = {"input_ids", "decoder_input_ids", "position_ids", "decoder_position_ids"}
_HERE = Path(__file__).parent


def is_plain(model: Any, given: dict[str, Any]) -> bool:
    """Whether the arguments of `_sample` ask for the likeliest tokens, and no one looks on."""
    call, settings = calls.last, given["generation_config"]
    return (
        call is not None
        and call.alone
        and can_step(call, given["model_kwargs"])
        and not any(getattr(settings, name, None) for name in _SETTINGS)
        and not given["logits_processor"]
        and not given["synced_gpus"]
        and given["streamer"] is None
        and {type(criterion).__name__ for criterion in given["stopping_criteria"]} <= _CRITERIA
        and given["stopping_criteria"].max_length is not None
        and not _is_watched(model)
    )


def _is_watched(model: Any) -> bool:
    """Whether someone has put something around the calls of modules, and would count them."""
    code = getattr(torch.nn.Module.__call__, "__code__", None)
    known = code is not None and Path(code.co_filename).parent in (_HERE, _TORCHS)
    hooks = of_torch._global_forward_hooks or of_torch._global_forward_pre_hooks
    return bool(
        not known or hooks or any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    )


_TORCHS = Path(inspect.getfile(of_torch)).parent


def follow(logits: Any, going: Any, padding: Any, ends: Any, place: Any) -> tuple[Any, Any, Any]:
    """The next tokens of (texts, 1, words) logits, which texts go on behind them, and where.

    Of torch's tensors or JAX's arrays: their methods have the same names.
    """
    token = logits[:, -1].argmax(-1) * going + padding * (1 - going)
    going = going * (1 - ((token[:, None] == ends).sum(-1) > 0) * 1)
    return token[:, None], going, None if place is None else place + 1


def text(model: Any, given: dict[str, Any], target: Target) -> torch.Tensor:
    """(texts, tokens) ids of the prompts, and of what follows: what `_sample` gives."""
    ids, settings = given["input_ids"], given["generation_config"]
    criteria, carried = given["stopping_criteria"], given["model_kwargs"]
    ends = [c.eos_token_id for c in criteria if hasattr(c, "eos_token_id")]
    end = torch.cat(ends).cpu() if ends else torch.empty(0, dtype=ids.dtype)
    outputs = model._prefill(ids, settings, carried, is_first_iteration=True)
    carried = model._update_model_kwargs_for_generation(
        outputs, carried, is_encoder_decoder=model.config.is_encoder_decoder
    )
    first = outputs.logits[:, -1].float().argmax(-1)
    ids = torch.cat([ids, first[:, None]], dim=-1)
    most = criteria.max_length - ids.shape[1]
    going = ~torch.isin(first, end)
    if most <= 0 or not going.any():
        return ids
    padding = settings._pad_token_tensor if ends else None
    with model._optimize_model_for_decode():
        inputs = model.prepare_inputs_for_generation(ids, next_sequence_length=1, **carried)
        new = _tokens(model, inputs, going, padding, end, most, target)
    return torch.cat([ids, new.to(ids.dtype)], dim=-1)


def _tokens(
    model: Any, inputs: Any, going: torch.Tensor, padding: Any, end: torch.Tensor, most: int,
    target: Target,
) -> torch.Tensor:  # fmt: skip
    """The (texts, tokens) that follow, ``most`` of them or until all texts have ended."""
    names = sorted(_MOVING & set(inputs), key=lambda name: "position" in name)
    ids, places = names[0], names[1] if len(names) > 1 else None
    pad = torch.zeros((), dtype=torch.long) if padding is None else padding.cpu()
    still, pad, ends = (target.to_device(t) for t in (going.long(), pad, end))
    chosen: list[Any] = []
    read: list[torch.Tensor] = []
    is_over = False
    while len(chosen) < most and not is_over:
        outputs = model(**inputs, return_dict=True)
        place = inputs[places] if places else None
        inputs[ids], still, place = target.at_once(follow)(outputs.logits, still, pad, ends, place)
        if places:
            inputs[places] = place
        target.boundary()
        chosen.append(inputs[ids])
        if len(chosen) % EVERY == 0:  # also without an end: no more than twice as many are pending
            read += [target.to_cpu(t) for t in chosen[len(read) : len(chosen) - EVERY]]
            is_over = bool(read) and not _going(going, read, end)[-1]
    read += [target.to_cpu(t) for t in chosen[len(read) :]]
    tokens = torch.cat(read, dim=1)
    steps = _going(going, read, end)
    return tokens[:, : steps.index(False) + 1] if False in steps else tokens


def _going(going: torch.Tensor, tokens: list[torch.Tensor], end: torch.Tensor) -> list[bool]:
    """Behind each of the tokens, whether a text goes on."""
    ended = torch.isin(torch.cat(tokens, dim=1), end).cumsum(1) > 0
    return (going[:, None] & ~ended).any(0).tolist()
