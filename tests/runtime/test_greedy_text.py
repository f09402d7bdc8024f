"""Greedy `generate` on both targets: tokens stay on the device, and are read some calls later."""

import copy
from typing import Any

import pytest
import torch
import tpu_runtime as tpu

from tests.runtime.generating import llama, moved, prompts
from tests.runtime.support import WORD

tpu.setup()
NEW = 40


def ends(on_cpu: Any, inputs: Any, *places: int) -> list[int]:
    """The tokens that stand at these places of each of the texts, as ends of text."""
    new = on_cpu.generate(**inputs, max_new_tokens=NEW, eos_token_id=None)[:, -NEW:]
    return [int(text[place]) for text, place in zip(new, places, strict=True)]


@pytest.mark.parametrize("places", [(0, 0), (3, 20), (19, 2), (39, 39)], ids=str)
def test_texts_end_where_they_end_on_the_cpu(places: tuple[int, int]) -> None:
    on_cpu, inputs = llama(), prompts(7)
    model = copy.deepcopy(on_cpu).to(WORD)
    options: dict[str, Any] = {"max_new_tokens": NEW, "eos_token_id": ends(on_cpu, inputs, *places)}
    tokens = model.generate(**moved(inputs), **options)
    assert tokens.device.type == WORD
    assert tokens.tolist() == on_cpu.generate(**inputs, **options).tolist()


def test_tokens_are_read_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    from tpu_runtime.text import greedy

    model = llama().to(WORD)
    in_flight: list[int] = []
    stock = greedy._going

    def noted(tokens: Any, end: Any) -> Any:
        in_flight.append(len(tokens))
        return stock(tokens, end)

    monkeypatch.setattr(greedy, "_going", noted)
    model.generate(**moved(prompts(5)), max_new_tokens=NEW, eos_token_id=1000)
    assert in_flight == [8, 16, 24, 32, NEW]  # by eights, while eight more are computed


def test_who_watches_a_model_sees_no_call_in_vain() -> None:
    on_cpu, inputs = llama(), prompts(7)
    options: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": ends(on_cpu, inputs, 2, 4)}
    model = copy.deepcopy(on_cpu).to(WORD)
    calls: dict[str, int] = {}
    for name, each, given in (("cpu", on_cpu, inputs), ("device", model, moved(inputs))):

        def count(*_: Any, name: str = name) -> None:
            calls[name] = calls.get(name, 0) + 1

        hook = each.register_forward_hook(count)
        each.generate(**given, **options)
        hook.remove()
    assert calls["device"] == calls["cpu"]


def test_one_text_without_an_end() -> None:
    on_cpu, inputs = llama(), {"input_ids": torch.tensor([[5, 6, 7, 8]])}
    model = copy.deepcopy(on_cpu).to(WORD)
    options: dict[str, Any] = {"max_new_tokens": 11, "eos_token_id": None}
    found = model.generate(**moved(inputs), **options)
    assert found.tolist() == on_cpu.generate(**inputs, **options).tolist()
