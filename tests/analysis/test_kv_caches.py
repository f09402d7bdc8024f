"""Caches that a model writes at a number: the known forms, and what only looks like them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, run, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import Severity

MODEL = """import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.cache_k = torch.zeros(2, length, 8).cuda()
        self.cache_v = torch.zeros(2, length, 8).cuda()

    def forward(self, x, start_pos: int, mask=None):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        self.cache_k[:b, start_pos : start_pos + n] = k
        self.cache_v[:b, start_pos : start_pos + n] = v
        keys = self.cache_k[:b, : start_pos + n]
        values = self.cache_v[:b, : start_pos + n]
        scores = torch.matmul(q, keys.transpose(1, 2)) / 8
        if mask is not None:
            scores = scores + mask
        scores = F.softmax(scores.float(), dim=-1).type_as(q)
        return torch.matmul(scores, values)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.attention = nn.Embedding(9, 8), Attention(16)
        self.register_buffer("places", torch.randn(16, 8))

    def forward(self, tokens, start_pos: int):
        n = tokens.shape[1]
        mask = None
        if n > 1:
            mask = torch.full((n, n), float("-inf"), device=tokens.device)
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((n, start_pos), device=tokens.device), mask])
        x = self.tokens(tokens) + self.places[start_pos : start_pos + n]
        return self.attention(x, start_pos, mask)
"""
LOOP = """

@torch.no_grad()
def generate(model, tokens, begin):
    previous = 0
    for at in range(begin, tokens.shape[1]):
        logits = model.forward(tokens[:, previous:at], previous)
        tokens[:, at] = torch.argmax(logits[:, -1], dim=-1)
        previous = at
"""
MASK_STEPS = """            mask = torch.full((n, n), float("-inf"), device=tokens.device)
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((n, start_pos), device=tokens.device), mask])
"""
WHOLE_MASK = MODEL[MODEL.index("        mask = None\n") : MODEL.index("        x = self.tokens")]
ADDED = "        if mask is not None:\n            scores = scores + mask\n"
WEIGHTS = MODEL[MODEL.index("        scores = torch.matmul(q") : MODEL.index("\n\nclass Model")]


def edited(source: str, target: str = "torchax") -> str:
    return run(source, target, unsafe=True).source.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_the_form(target: str) -> None:
    text = edited(MODEL + LOOP, target)
    assert "        self.cache_k[:b, at] = k\n        self.cache_v[:b, at] = v\n" in text
    assert "keys = self.cache_k[:b]\n" in text and "values = self.cache_v[:b]\n" in text
    assert "> at[:, None]\n        scores = scores.masked_fill(later, -torch.inf)\n" in text
    assert (
        "mask = None\n        at = start_pos + torch.arange(n, device=self.places.device)" in text
    )
    assert "self.places[at]" in text and "torch.full" not in text and ": int" not in text
    window = "previous:at" if target == "torchax" else "torch.arange(previous, at)"
    assert f"model.forward(tokens[:, {window}], start)" in text
    assert text.count("tokens[:, [at]] = ") == (target == "torch_xla")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MASK_STEPS, MASK_STEPS[: MASK_STEPS.index("            mask = torch.hstack")]),
        (MASK_STEPS, "            mask = torch.full((n, n), -torch.inf).triu(1).type_as(tokens)\n"),
        (MASK_STEPS, '            mask = torch.full((1, 1, n, n), float("-inf"))\n'
         "            mask = torch.triu(mask, diagonal=start_pos + 1).to(tokens.device)\n"),
        ("torch.hstack([torch.zeros((n, start_pos), device=tokens.device), mask])",
         "torch.cat((torch.zeros(n, start_pos), mask), dim=1)"),
        ("n = tokens.shape[1]", "_, n = tokens.shape"),
        (" + self.places[start_pos : start_pos + n]", ""),
        ("torch.matmul(q, keys.transpose(1, 2)) / 8", "q @ keys.mT"),
        (" / 8\n", "\n        scores = scores / 8\n"),
        ("F.softmax(scores.float(), dim=-1)", "scores.softmax(-1)"),
        ("            scores = scores + mask", "            scores += mask"),
        ("        self.cache_k[:b, ", "        self.cache_k = self.cache_k.to(x)\n"
         "        self.cache_k[:b, "),
        ("self.cache_k = torch.zeros(2, length, 8).cuda()",
         'self.register_buffer("cache_k", torch.zeros(2, length, 8).cuda())'),
    ],
)  # fmt: skip
def test_other_forms(old: str, new: str) -> None:
    assert old in MODEL
    text = edited(MODEL.replace(old, new, 1))
    assert "self.cache_k[:b, at] = k" in text
    assert "torch.full" not in text and "masked_fill(later, -torch.inf)" in text


def test_what_has_no_mask_sees_all_that_is_written() -> None:
    """Also where there are several tokens: as it did."""
    text = edited(MODEL.replace(WHOLE_MASK, "").replace(", mask)\n", ")\n").replace(ADDED, ""))
    assert (
        "later = torch.arange(self.cache_k.shape[1], device=self.cache_k.device) > at[-1]" in text
    )


def test_fused_attention() -> None:
    fused = "        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)\n"
    text = edited(MODEL.replace(WEIGHTS, fused))
    seen = "torch.arange(self.cache_k.shape[1], device=self.cache_k.device) <= at[:, None]"
    assert f"F.scaled_dot_product_attention(q, keys, values, attn_mask={seen})" in text
    alone = MODEL.replace(WEIGHTS, fused.replace(", attn_mask=mask", ""))
    text = edited(alone.replace(WHOLE_MASK, "").replace(", mask)\n", ")\n"))
    assert f"attn_mask=({seen.replace('[:, None]', '[-1]')})[None]" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.zeros(2, length, 8).cuda()", "torch.empty(2, length, 8).cuda()"),
        ("self.cache_k[:b, start_pos", "self.cache_k[1, start_pos"),
        ("self.cache_k[:b, start_pos", "self.cache_k[:b, 0, start_pos"),
        ("self.cache_k[:b, : start_pos + n]", "self.cache_k[:b, : start_pos + n + 1]"),
        ("self.cache_k[:b, : start_pos + n]", "self.cache_k[:b, : start_pos + n].cumsum(1)"
         " + self.cache_k.sum()"),
        ("        values = ", "        print(start_pos)\n        values = "),
        ("        values = ", "        if start_pos > 0:\n            print(n)\n        values = "),
        ("        values = ", "        start_pos = start_pos + 1\n        values = "),
        ("        values = ", "        n = n + 1\n        values = "),
        ("        keys = ", "        if n > 1:\n            x = self.cache_k[:b, : start_pos + n]\n"
         "        keys = "),
        (" / 8\n", " / 8\n        scores = scores.masked_fill(self.seen == 0, -1e9)\n"),
        ("dim=-1", "dim=1"),
        ("scores.float()", "scores.abs()"),
        ("        scores = F.softmax", "        x = x.softmax(-1)\n        scores = F.softmax"),
        ("scores = scores + mask", "scores = scores - mask"),
        (ADDED, "        scores = scores + mask\n"),
        (ADDED, ""),
        (WHOLE_MASK, "        mask = None\n"),
        (WHOLE_MASK, WHOLE_MASK.replace("n > 1", "n > 2")),
        (WHOLE_MASK, WHOLE_MASK.replace("n > 1", "b > 1")),
        ("diagonal=1", "diagonal=0"),
        ('float("-inf")', "-1e9"),
        ("(n, n)", "(n, 1)"),
        ("torch.zeros((n, start_pos)", "torch.ones((n, start_pos)"),
        ("        x = self.tokens", "        mask = change(mask) + mask\n        x = self.tokens"),
        ("        x = self.tokens", "        if mask is None:\n            print(n)\n"
         "        x = self.tokens"),
        ("        return self.attention(x, start_pos, mask)",
         "        return self.attention(x, max(start_pos, 1), mask)"),
        ("class Model", "class Layer(nn.Module):\n    def forward(self, x, start_pos):\n"
         "        return x * start_pos\n\n\nclass Model"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", TARGETS)
def test_what_only_looks_like_it(target: str, old: str, new: str) -> None:
    assert old in MODEL
    text = edited(MODEL.replace(old, new) + LOOP, target)
    assert "torch.arange" not in text and "[at]" not in text


def test_without_unsafe_it_is_advice() -> None:
    result = run(MODEL + LOOP, "torch_xla")
    assert b"arange" not in result.source
    said = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert [d.code for d in said if "--unsafe" in d.message] == ["TOK002", "TOK002"]
    assert sum(d.code == "ADV012" for d in said) == 5


@pytest.mark.parametrize("cache", ["zeros", "empty"])
def test_a_model_of_another_file(tmp_path: Path, cache: str) -> None:
    """A position is a tensor where the model that it is for takes one."""
    program = f"import torch\nfrom model import Model\n\nmodel = Model().cuda()\n{LOOP}"
    model = MODEL.replace("torch.zeros(2", f"torch.{cache}(2")
    write_tree(tmp_path, {"model.py": model, "main.py": program})
    config = Config(unsafe=True)
    files = migrate_paths([tmp_path], "torchax", config=config).files
    text = {f.path.name: f.result.source.decode() for f in files}
    takes, gives = "at = start_pos" in text["model.py"], "start = torch.tensor" in text["main.py"]
    assert takes is gives is (cache == "zeros")
