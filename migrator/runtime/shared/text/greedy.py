"""Greedy decoding with transformers' `generate`: chosen tokens stay on the device.

The model's next call uses them there, so the device doesn't wait for the host. The host reads
tokens some calls later. If it finds that all texts had ended, it drops the tokens after that;
computing them had no other effect.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as of_torch

from .generate_calls import GenerateTarget, calls
from .model_inputs import can_step

EVERY = 8  # tokens between two reads

_SETTINGS = ("do_sample", "return_dict_in_generate", "is_assistant")
_CRITERIA = {"MaxLengthCriteria", "EosTokenCriteria"}
_MOVING = {"input_ids", "decoder_input_ids", "position_ids", "decoder_position_ids"}
_RUNTIME = Path(__file__).parents[1]


def is_plain(model: Any, given: dict[str, Any]) -> bool:
    """Whether the arguments of `_sample` mean plain greedy decoding that nothing observes."""
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
    """Whether calls of modules are wrapped by something that would count them."""
    code = getattr(torch.nn.Module.__call__, "__code__", None)
    folder = Path(code.co_filename).parent if code is not None else Path()
    known = folder == _TORCHS or folder.is_relative_to(_RUNTIME)
    hooks = of_torch._global_forward_hooks or of_torch._global_forward_pre_hooks
    return bool(
        not known or hooks or any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    )


_TORCHS = Path(inspect.getfile(of_torch)).parent


def choice(model: Any, logits: Any, still: Any, pad: Any, ends: Any) -> tuple[Any, Any]:
    """The most likely tokens, (texts, 1), and which texts continue after them."""
    token = logits[:, -1].argmax(-1) * still + pad * (1 - still)
    still = still * (1 - ((token[:, None] == ends).sum(-1) > 0) * 1)
    return token[:, None], still


def next_token(
    model: Any, still: Any, pad: Any, ends: Any, places: str, **inputs: Any
) -> tuple[Any, Any, Any]:
    """The token after (texts, 1) of ``inputs``, which texts continue after it, and its position.

    ``places`` is the name of the input with the position; "" if there is none.
    """
    logits = model(**inputs, return_dict=True).logits
    token, still = choice(model, logits, still, pad, ends)
    return token, still, inputs[places] + 1 if places else None


def text(model: Any, given: dict[str, Any], target: GenerateTarget) -> torch.Tensor:
    """Token ids (texts, tokens) of the prompts and their continuations: the result of `_sample`."""
    ids, settings = given["input_ids"], given["generation_config"]
    criteria, carried = given["stopping_criteria"], given["model_kwargs"]
    ends = [c.eos_token_id for c in criteria if hasattr(c, "eos_token_id")]
    end = torch.cat(ends).cpu() if ends else torch.empty(0, dtype=ids.dtype)
    pad = settings._pad_token_tensor.cpu() if ends else torch.zeros((), dtype=torch.long)
    outputs = model._prefill(ids, settings, carried, is_first_iteration=True)
    still = torch.ones(len(ids), dtype=torch.long)
    how = {n: target.to_device(t) for n, t in (("still", still), ("pad", pad), ("ends", end))}
    first, how["still"] = target.of_model(model, choice)(logits=outputs.logits, **how)
    target.boundary()
    outputs.logits = None
    carried = model._update_model_kwargs_for_generation(
        outputs, carried, is_encoder_decoder=model.config.is_encoder_decoder
    )
    with model._optimize_model_for_decode():
        longer = torch.cat([ids, ids[:, -1:]], dim=-1)  # the last one is on the device
        inputs = model.prepare_inputs_for_generation(longer, next_sequence_length=1, **carried)
        most = criteria.max_length - ids.shape[1]
        new = _tokens(model, first, inputs, how, end, most, target)
    return torch.cat([ids, new.to(ids.dtype)], dim=-1)


def _tokens(
    model: Any, first: Any, inputs: Any, how: dict[str, Any], end: torch.Tensor, most: int,
    target: GenerateTarget,
) -> torch.Tensor:  # fmt: skip
    """All tokens (texts, tokens) up to ``most``, or until all texts have ended."""
    names = sorted(_MOVING & set(inputs), key=lambda name: "position" in name)
    ids, places = names[0], names[1] if len(names) > 1 else ""
    step = target.of_model(model, next_token)
    chosen: list[Any] = [first]
    read: list[torch.Tensor] = []
    is_over = False
    while len(chosen) < most and not is_over:
        inputs[ids] = chosen[-1]
        token, how["still"], place = step(places=places, **how, **inputs)
        if places:
            inputs[places] = place
        target.boundary()
        chosen.append(token)
        if len(chosen) % EVERY == 0:  # even without an end: at most twice as many are pending
            read += [target.to_cpu(t) for t in chosen[len(read) : len(chosen) - EVERY]]
            is_over = bool(read) and not _going(read, end)[-1]
    read += [target.to_cpu(t) for t in chosen[len(read) :]]
    tokens = torch.cat(read, dim=1)
    steps = _going(read, end)
    return tokens[:, : steps.index(False) + 1] if False in steps else tokens


def _going(tokens: list[torch.Tensor], end: torch.Tensor) -> list[bool]:
    """For each token, whether its text continues after it."""
    ended = torch.isin(torch.cat(tokens, dim=1), end).cumsum(1) > 0
    return (~ended).any(0).tolist()
