"""`tpu_runtime.TokenBuffer` on both targets: the tokens of a loop that joins them, by few programs.

Run in the environment of each target, see conftest.py.
"""

from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from torch import Tensor, nn

from tests.runtime.support import WORD
from tests.runtime.test_generation import compilations

tpu.setup()

WORDS = 19


class Causal(nn.Module):
    """One layer of causal attention with positions: the next token depends on all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(128, 8)
        self.head = nn.Linear(8, WORDS)

    def forward(self, tokens: Tensor, last: Tensor | None = None) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        x = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return self.head(x if last is None else x.index_select(1, last))


def model() -> Causal:
    torch.manual_seed(0)
    made = Causal()
    for parameter in made.parameters():
        parameter.data *= 3
    return made


def prompt(length: int) -> Tensor:
    return torch.randint(WORDS, (2, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
def expected(tokens: Tensor, count: int, limit: int) -> Tensor:
    """What the CPU makes with a tensor that grows."""
    on_cpu = model()
    for _ in range(count):
        logits = on_cpu(tokens[:, -limit:])[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
    return tokens


@torch.no_grad()
def grow(buffer: Any, net: Causal, count: int, limit: int, told: bool = False) -> None:
    """Append as many tokens."""
    for _ in range(count):
        window = buffer.window(limit)
        logits = net(window, buffer.position)[:, -1] if told else buffer.last(net(window))
        buffer.append(logits.argmax(-1, keepdim=True))
        if WORD == "xla":
            import torch_xla

            torch_xla.sync()


@pytest.mark.parametrize("told", [False, True], ids=["all positions", "the last position"])
def test_the_tokens_are_those_of_a_tensor_that_grows(told: bool) -> None:
    """Also where the window moves, and where the buffer is full."""
    net = model().to(WORD)
    for length, count, limit in ((5, 4, 128), (4, 8, 9), (62, 4, 128)):
        tokens = prompt(length)
        buffer = tpu.TokenBuffer(tokens.to(WORD))
        grow(buffer, net, count, limit, told)
        assert buffer.tokens.device.type == WORD
        assert buffer.tokens.tolist() == expected(tokens, count, limit).tolist()


def test_other_lengths_run_the_same_programs() -> None:
    net = model().to(WORD)
    grow(tpu.TokenBuffer(prompt(5).to(WORD)), net, 5, 128)
    buffer = tpu.TokenBuffer(prompt(7).to(WORD))
    with compilations() as found:
        grow(buffer, net, 6, 128)
    assert found == []


def test_several_tokens_and_vectors_are_appended() -> None:
    series = torch.randn(2, 63, 3)
    buffer = tpu.TokenBuffer(series.to(WORD))
    more = torch.randn(2, 2, 3)
    buffer.append(more.to(WORD))
    assert torch.equal(buffer.tokens.cpu(), torch.cat([series, more], dim=1))
    assert buffer.window(4).cpu().tolist() == torch.cat([series, more], dim=1)[:, -4:].tolist()


def test_types_are_promoted_and_the_last_0_tokens_are_all() -> None:
    words = prompt(5)
    buffer = tpu.TokenBuffer(words.to(WORD))
    buffer.append(words[:, :1].int().to(WORD))
    assert buffer.tokens.tolist() == torch.cat([words, words[:, :1]], dim=1).tolist()
    assert buffer.window(0).shape[1] == 64


def test_a_model_that_keeps_other_positions_is_refused() -> None:
    buffer = tpu.TokenBuffer(prompt(5).to(WORD))
    window = buffer.window()
    with pytest.raises(ValueError, match="64 tokens, padded on the right, and returns 1 positions"):
        buffer.last(window[:, -1:])
