"""Kinds of models and programs around transformers' `generate`: what has static shapes, and how.

Run in the environment of each target, see conftest.py.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    Gemma2Config,
    Gemma2ForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    MistralConfig,
    MistralForCausalLM,
    StoppingCriteria,
    StoppingCriteriaList,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation.streamers import BaseStreamer

from tests.runtime.generating import TOKENS, compilations, llama, moved, prompts
from tests.runtime.support import WORD

tpu.setup()

SMALL: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 4,
    "max_position_embeddings": 128, **TOKENS,
}  # fmt: skip


def t5() -> Any:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=32, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=2, pad_token_id=0,
        eos_token_id=2, decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


def bart() -> Any:
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=32, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, forced_eos_token_id=None,
        max_position_embeddings=40, decoder_start_token_id=2, **TOKENS,
    )  # fmt: skip
    return BartForConditionalGeneration(config).eval()


def mistral() -> Any:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**SMALL)).eval()


def gemma() -> Any:
    torch.manual_seed(0)
    return Gemma2ForCausalLM(Gemma2Config(query_pre_attn_scalar=8, **SMALL)).eval()


def reversed_padding(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Padded on the right, as encoders have it."""
    return {name: tensor.flip(1) for name, tensor in inputs.items()}


@contextmanager
def nothing_is_slow() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r".*(is slow|not compiled)")
        yield


def follows_the_cpu(
    on_cpu: Any, inputs: dict[str, Tensor], model: Any = None, **options: Any
) -> None:
    model = copy.deepcopy(on_cpu).to(WORD) if model is None else model
    tokens = model.generate(**moved(inputs), **options)
    assert tokens.device.type == WORD
    assert tokens.tolist() == on_cpu.generate(**inputs, **options).tolist()


@pytest.mark.parametrize(
    "make",
    [t5, pytest.param(bart, marks=pytest.mark.thorough)],
)
def test_an_encoder_is_one_program_for_all_lengths(make: Any) -> None:
    on_cpu = make()
    model = copy.deepcopy(on_cpu).to(WORD)
    with nothing_is_slow():
        for length, new in ((5, 4), (6, 6), (7, 5)):  # on torchax a move is a program by its shape
            inputs = reversed_padding(prompts(length, seed=length))
            options = {"max_new_tokens": new, "min_new_tokens": new}
            with compilations() as found:
                tokens = model.generate(**moved(inputs), **options)
            assert tokens.tolist() == on_cpu.generate(**inputs, **options).tolist()
    assert found == []


@pytest.mark.thorough
def test_beams_of_an_encoder_and_decoder() -> None:
    follows_the_cpu(t5(), reversed_padding(prompts(5)), num_beams=3, max_new_tokens=6)


@pytest.mark.parametrize("make", [mistral, pytest.param(gemma, marks=pytest.mark.thorough)])
def test_a_window_slides_in_one_program(make: Any) -> None:
    """The prompt is longer than the window, and the answer, too."""
    on_cpu = make()
    model = copy.deepcopy(on_cpu).to(WORD)
    follows_the_cpu(on_cpu, prompts(3), model, max_new_tokens=6, min_new_tokens=6)
    torch.zeros(2, 12, dtype=torch.long).to(WORD)  # on torchax a move is a program by its shape
    with compilations() as found:
        follows_the_cpu(on_cpu, prompts(3), model, max_new_tokens=9, min_new_tokens=9)
    assert found == []
    follows_the_cpu(on_cpu, prompts(9), model, max_new_tokens=7)


class Ban(LogitsProcessor):
    def __init__(self, token: int) -> None:
        self.token = token
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        scores = scores.clone()
        scores[:, self.token] = -torch.inf
        return scores


class Bias(LogitsProcessor):
    def __init__(self, bias: Tensor) -> None:
        self.bias = bias

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.device = scores.device.type
        return scores + self.bias.to(scores.device)


class Stop(StoppingCriteria):
    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        is_long = input_ids.shape[1] >= self.length
        return torch.full((len(input_ids),), is_long, device=input_ids.device)


class Kept(BaseStreamer):
    def __init__(self) -> None:
        self.tokens: list[Any] = []

    def put(self, value: Tensor) -> None:
        self.tokens.append(value.tolist())

    def end(self) -> None:
        self.tokens.append("end")


def test_what_the_program_brings_sees_token_ids_of_the_cpu() -> None:
    """As long as nothing in its reach is on the device."""
    on_cpu, inputs, kept = llama(), prompts(5), []
    model = copy.deepcopy(on_cpu).to(WORD)
    for each, given in ((on_cpu, inputs), (model, moved(inputs))):
        ban, streamer = Ban(int(on_cpu.generate(**inputs, max_new_tokens=1)[0, -1])), Kept()
        with nothing_is_slow():
            tokens = each.generate(
                **given, max_new_tokens=8, logits_processor=LogitsProcessorList([ban]),
                stopping_criteria=StoppingCriteriaList([Stop(9)]),
            )  # fmt: skip
            first = {name: tensor[1:] for name, tensor in given.items()}
            each.generate(**first, max_new_tokens=3, streamer=streamer)
        kept.append((tokens.tolist(), ban.calls, streamer.tokens))
    assert kept[0] == kept[1]


@pytest.mark.thorough
def test_what_has_tensors_on_the_device_gets_token_ids_there() -> None:
    on_cpu, inputs, bias = llama(), prompts(5), torch.randn(32)
    model = copy.deepcopy(on_cpu).to(WORD)
    at_home, there = Bias(bias), Bias(bias.to(WORD))
    options = {"max_new_tokens": 3}
    expected = on_cpu.generate(**inputs, logits_processor=LogitsProcessorList([at_home]), **options)
    with pytest.warns(UserWarning, match="stay on the device with logits_processor"):
        tokens = model.generate(
            **moved(inputs), logits_processor=LogitsProcessorList([there]), **options
        )
    assert there.device == WORD
    assert tokens.tolist() == expected.tolist()


@pytest.mark.thorough
def test_what_a_streamer_changes_in_a_model_counts() -> None:
    """Only where no code of the program's own runs is a model not looked at from token to token."""
    on_cpu = llama()
    model = copy.deepcopy(on_cpu).to(WORD)

    class Flattening(BaseStreamer):
        def __init__(self, norm: Any) -> None:
            self.norm, self.plain = norm, norm.variance_epsilon

        def put(self, value: Tensor) -> None:
            self.norm.variance_epsilon = 1e6 if self.norm.variance_epsilon < 1 else self.plain

        def end(self) -> None:
            self.norm.variance_epsilon = self.plain

    options = {"max_new_tokens": 5, "return_dict_in_generate": True, "output_scores": True}
    inputs = {name: tensor[1:] for name, tensor in prompts(5).items()}
    expected = on_cpu.generate(**inputs, streamer=Flattening(on_cpu.model.norm), **options)
    made = model.generate(**moved(inputs), streamer=Flattening(model.model.norm), **options)
    spread = [float(scores.std()) for scores in expected.scores]
    assert max(spread) > 1e2 * min(spread)
    for ours, theirs in zip(made.scores, expected.scores, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, atol=1e-5, rtol=1e-4)


def test_a_thread_of_its_own_generates() -> None:
    """Beside it the main one reads what a streamer has, as with TextIteratorStreamer."""
    on_cpu, kept = llama(), []
    for model, place in ((on_cpu, "cpu"), (copy.deepcopy(on_cpu).to(WORD), WORD)):
        given = {name: tensor[1:].to(place) for name, tensor in prompts(5).items()}
        options = {**given, "max_new_tokens": 3, "streamer": Kept()}
        thread = Thread(target=model.generate, kwargs=options)
        thread.start()
        thread.join()
        kept.append(options["streamer"].tokens)
    assert kept[0] == kept[1] and kept[0][-1] == "end"


def test_threads_draw_by_the_seed_of_the_program() -> None:
    """On the device, where ids stay with what has tensors there."""
    model, drawn = llama().to(WORD), []
    options = {**moved(prompts(5)), "max_new_tokens": 4, "do_sample": True}
    options["logits_processor"] = LogitsProcessorList([Bias(torch.randn(32).to(WORD))])

    def generate() -> None:
        drawn.append(model.generate(**options).tolist())

    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        thread = Thread(target=generate)
        thread.start()
        thread.join()
    assert drawn[0] == drawn[1] != drawn[2]
