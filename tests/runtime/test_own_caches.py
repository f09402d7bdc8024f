"""Caches of keys and values that are written at a tensor: TOK002 to TOK004, docs/generation.md.

The tokens are the original's, and one program serves all positions. Run in the environment of each
target, see conftest.py.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
import torch
import tpu_runtime as tpu
from given_cache import MODELS
from grown_cache import MODEL
from helpers import REPOSITORY, migrated
from target import TARGET
from tiers import thorough_on

from tests.runtime.generating import compilations
from tests.runtime.support import WORD

tpu.setup()

# Texts until all programs are there on torchax: a number is an input at its second value, and a
# program is compiled at its second occurrence where many occurred only once.
WARM = 4
APP = REPOSITORY / "reference_apps" / "generate"
GROWING = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, past=None):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
        n, of = x.shape[1], k.shape[1]
        later = torch.ones(n, of, device=x.device).triu(1 + of - n) > 0
        scores = (q @ k.mT).masked_fill(later, -torch.inf)
        return scores.softmax(dim=-1) @ v, (k, v)
"""


def edited(source: str, name: str) -> str:
    """A source with the edit that the page shows for a file of this name."""
    page = (REPOSITORY / "docs" / "generation.md").read_text("utf-8")
    (diff,) = re.findall(rf"```diff\n--- {re.escape(name)}\n(.*?)```", page, re.DOTALL)
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(x[1:] for x in lines if x[0] in kept) for kept in (" -", " +"))
        if source.count(before) != 1:
            raise ValueError(f"{name} does not have, once:\n{before}")
        source = source.replace(before, after)
    return source


def on_cpu(source: str) -> str:
    return source.replace(".cuda()", "").replace('"cuda"', '"cpu"')


def module(source: str) -> Any:
    made = ModuleType("edited")
    exec(compile(source, "<edited>", "exec"), vars(made))
    return made


def text(program: Any, begin: int, total: int, device: str) -> Any:
    """Makes the same text again and again: a function."""
    torch.manual_seed(0)
    model = program.Llama(2, total, width=16, layers=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.to(device).eval()
    ids = torch.randint(256, (2, begin))
    drawn = torch.rand(total, 2, 1).to(device)
    return lambda: [made.cpu() for made in program.generate(model, ids, drawn)]


def end_of_round() -> None:
    if TARGET == "torch_xla":
        import torch_xla

        torch_xla.sync()


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(APP)
    return (APP / "generate_llama.py").read_text()


@thorough_on("torchax")
def test_a_cache_that_is_written_at_a_tensor_is_one_program(llama: str) -> None:
    tokens, logits = text(module(on_cpu(llama)), 4, 16, "cpu")()
    make = text(module(migrated(llama, TARGET, unsafe=True)), 4, 16, WORD)
    if TARGET == "torchax":
        for _ in range(WARM):
            make()
    with compilations() as programs:
        for _ in range(2):
            found = make()
            assert torch.equal(found[0], tokens)
    torch.testing.assert_close(found[1], logits, atol=1e-4, rtol=0)
    assert len(programs) <= (0 if TARGET == "torchax" else 3)


@torch.no_grad()
def test_keys_and_values_that_grew_are_written_at_a_tensor() -> None:
    old, new = module(GROWING), module(edited(GROWING, "attention.py"))
    torch.manual_seed(0)
    grown, written = old.Attention(), new.Attention()
    written.load_state_dict(grown.state_dict())
    written.to(WORD)
    x, total = torch.randn(2, 8, 8), 12
    past, cache = None, tuple(torch.zeros(2, total, 8).to(WORD) for _ in range(2))
    parts = [(0, 4), (4, 5), (5, 6), (6, 7), (7, 8)]
    found: list[str] = []
    for number, (begin, end) in enumerate(parts):
        expected, past = grown(x[:, begin:end], past)
        given, at = x[:, begin:end].to(WORD), torch.arange(begin, end).to(WORD)
        with compilations() as programs:
            result, cache = written(given, cache, at)
            end_of_round()
        torch.testing.assert_close(result.cpu(), expected, atol=1e-5, rtol=0)
        if number > 2:  # the prompt, the first token, and on torchax its program
            found += programs
    assert found == []


def pair(source: str, std: float = 0.5) -> tuple[Any, Any]:
    """The program on the CPU, and its migration, with the same parameters."""
    old, new = module(on_cpu(source)), module(migrated(source, TARGET, unsafe=True))
    torch.manual_seed(0)
    for parameter in old.model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    new.model.load_state_dict(old.model.state_dict())
    for program in (old, new):
        program.model.eval()
    return old, new


@thorough_on("torchax")
def test_a_cache_that_grew_is_one_program() -> None:
    texts = [torch.tensor([[5, 1, 7], [2, 2, 8]]), torch.tensor([[3, 1, 2], [0, 4, 4]])]
    old, new = pair(MODEL, std=1.0)
    expected = [old.generate(tokens, 12) for tokens in texts]
    assert len(expected[0].unique()) > 3
    assert torch.equal(new.generate(texts[0].to(WORD), 12).cpu(), expected[0])
    for tokens in texts * (WARM // 2):  # the program of a prompt that finds the cache there
        new.generate(tokens.to(WORD), 12).cpu()
    with compilations() as programs:
        for tokens, made in zip(texts, expected, strict=True):
            assert torch.equal(new.generate(tokens.to(WORD), 12).cpu(), made)
    assert len(programs) == 0
    one = texts[1][1:]  # a text less
    assert torch.equal(new.generate(one.to(WORD), 12).cpu(), old.generate(one, 12))


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_cache_that_grew_takes_several_tokens_at_once(use_cache: bool) -> None:
    old, new = module(on_cpu(MODEL)), module(migrated(MODEL, TARGET, unsafe=True))
    new.model.load_state_dict(old.model.state_dict())
    for program in (old, new):
        program.model.eval()
    tokens = torch.tensor([[5, 1, 7, 3, 3, 0]])
    with torch.no_grad():
        for part in (tokens[:, :2], tokens[:, 2:5], tokens[:, 5:]):
            expected = old.model(part, use_cache=use_cache)
            found = new.model(part.to(WORD), use_cache=use_cache)
            torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MODELS)
@thorough_on("torchax")
def test_a_cache_that_is_given_is_one_program(name: str) -> None:
    old, new = pair(MODELS[name], std=1.0)
    texts = [torch.tensor([[5, 1, 7], [2, 2, 8]]), torch.tensor([[3, 1, 2], [0, 4, 4]])]
    expected = [old.generate(tokens, 12) for tokens in texts]
    assert len(expected[0].unique()) > 3
    for tokens, made in 2 * [*zip(texts, expected, strict=True)]:
        assert torch.equal(new.generate(tokens.to(WORD), 12).cpu(), made)
    with compilations() as programs:
        for tokens, made in zip(texts, expected, strict=True):
            assert torch.equal(new.generate(tokens.to(WORD), 12).cpu(), made)
    assert len(programs) == 0
    one = texts[1][1:]  # a text less
    assert torch.equal(new.generate(one.to(WORD), 12).cpu(), old.generate(one, 12))


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_that_is_given_takes_several_tokens_at_once(name: str) -> None:
    old, new = pair(MODELS[name])
    tokens, pasts, caches = torch.tensor([[5, 1, 7, 3, 3, 0]]), None, None
    with torch.no_grad():
        for part in (tokens[:, :2], tokens[:, 2:5], tokens[:, 5:]):
            expected, pasts = old.model(part, pasts, use_cache=True)
            found, caches = new.model(part.to(WORD), caches, use_cache=True)
            torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_training_without_a_cache_stays_the_same(name: str) -> None:
    old, new = pair(MODELS[name])
    tokens = torch.tensor([[5, 1, 7, 3, 3, 0]])
    old.model(tokens)[0].logsumexp(-1).mean().backward()
    given = tokens.to(WORD)
    new.model.to(WORD)
    new.model(given)[0].logsumexp(-1).mean().backward()
    expected = dict(old.model.named_parameters())
    for key, parameter in new.model.named_parameters():
        torch.testing.assert_close(parameter.grad.cpu(), expected[key].grad, atol=1e-4, rtol=1e-4)
