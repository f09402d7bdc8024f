"""transformers' `generate` on both targets: the CPU's tokens, by programs that come again.

Run in the environment of each target, see conftest.py.
"""

import copy
import warnings
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from tiers import thorough_on
from transformers import GPT2Config, GPT2LMHeadModel

from tests.runtime.generating import TOKENS, compilations, llama, moved, prompts
from tests.runtime.support import WORD

tpu.setup()


def gpt2() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=20, **TOKENS)
    return GPT2LMHeadModel(config).eval()


def test_other_lengths_run_the_same_programs() -> None:
    on_cpu = llama()
    model = copy.deepcopy(on_cpu).to(WORD)
    for length, new in ((5, 4), (6, 6), (9, 3)):  # on torchax a move is a program by its shape
        inputs = prompts(length, seed=length)
        with compilations() as found:
            tokens = model.generate(**moved(inputs), max_new_tokens=new)
        assert tokens.device.type == WORD
        assert tokens.tolist() == on_cpu.generate(**inputs, max_new_tokens=new).tolist()
    assert found == []


def test_drawn_tokens_are_those_of_the_cpu() -> None:
    on_cpu = llama()
    model = copy.deepcopy(on_cpu).to(WORD)
    drawn = []
    for each, inputs in ((on_cpu, prompts(5)), (model, moved(prompts(5)))):
        torch.manual_seed(1)
        options = {"do_sample": True, "top_p": 0.9, "temperature": 2.0}
        drawn.append(each.generate(**inputs, max_new_tokens=6, **options).tolist())
    assert drawn[0] == drawn[1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3, "num_return_sequences": 2},
        {"repetition_penalty": 1.3, "min_new_tokens": 5},
        {"max_new_tokens": 1},
        {"cache_implementation": "static"},
    ],
    ids=str,
)
def test_other_ways_to_choose_tokens(options: dict[str, Any]) -> None:
    on_cpu, options = llama(), {"max_new_tokens": 6, **options}
    model = copy.deepcopy(on_cpu).to(WORD)
    tokens = model.generate(**moved(prompts(5)), **options)
    assert tokens.tolist() == on_cpu.generate(**prompts(5), **options).tolist()


@pytest.mark.thorough
def test_scores_and_a_model_that_ends_at_its_last_position() -> None:
    on_cpu = gpt2()
    model = copy.deepcopy(on_cpu).to(WORD)
    options = {"max_length": 20, "return_dict_in_generate": True, "output_scores": True}
    made = model.generate(**moved(prompts(5)), **options)
    expected = on_cpu.generate(**prompts(5), **options)
    assert made.sequences.tolist() == expected.sequences.tolist()
    for ours, theirs in zip(made.scores, expected.scores, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, atol=1e-5, rtol=1e-5)


@thorough_on("torchax")
def test_what_is_not_served_is_said() -> None:
    on_cpu = llama()
    model = copy.deepcopy(on_cpu).to(WORD)
    with pytest.warns(UserWarning, match=r"generate\(\) is slow, because use_cache=False"):
        tokens = model.generate(**moved(prompts(5)), max_new_tokens=1, use_cache=False)
    assert tokens.tolist() == on_cpu.generate(**prompts(5), max_new_tokens=1).tolist()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.generate(**moved(prompts(5)), max_new_tokens=1, use_cache=False)
    assert not any("generate()" in str(each.message) for each in told)
