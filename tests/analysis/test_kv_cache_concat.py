"""Caches that a module joins with new keys and values: the known form, and what only looks like it.

That the tokens stay the same is shown by tests/runtime/test_own_caches.py.
"""

from __future__ import annotations

import pytest
from grown_cache import MODEL
from helpers import TARGETS, run

from migrator.diagnostics import Severity

SEPARATE = "                self.cache_k = k\n                self.cache_v = v\n"
TOGETHER = "                self.cache_k, self.cache_v = k, v\n"
MASKED = "        scores.masked_fill_(hidden, -torch.inf)\n"
WEIGHED = MODEL[MODEL.index("        weights = torch") : MODEL.index("        weights = self.drop")]
HIDDEN = "            hidden = self.mask.bool()[self.position : self.position + n, :count]\n"
READ = "            keys, values = self.cache_k, self.cache_v\n"
GROWS = "            self.position += n\n"
TOLD = "        if use_cache:\n            hidden"
RESET = "        self.attention.reset()\n"


def edited(source: str, target: str = "torchax") -> str:
    return run(source, target, unsafe=True).source.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_the_form(target: str) -> None:
    text = edited(MODEL, target)
    assert (
        "            at = self.position + torch.arange(k.shape[1], device=k.device)\n"
        "            if self.cache_k is None or len(self.cache_k) != len(k):\n"
        "                self.cache_k = k.new_zeros(len(k), self.mask.shape[-1], *k.shape[2:])\n"
        "                self.cache_v = v.new_zeros(len(v), self.mask.shape[-1], *v.shape[2:])\n"
        "            self.cache_k[:, at] = k\n"
        "            self.cache_v[:, at] = v\n"
        "            keys, values = self.cache_k, self.cache_v\n"
    ) in text
    assert "hidden = self.mask.bool()[at, :count]" in text
    assert "places = self.seen + torch.arange(n, device=tokens.device)\n" in text
    for name in ("position", "seen"):
        assert f'self.register_buffer("{name}", torch.tensor(0), persistent=False)' in text
        assert f"self.{name}.zero_()" in text and f"self.{name} += n" in text
    assert "def reset(self):\n        self.position.zero_()\n" in text
    assert "torch.cat([self" not in text
    assert "collected.append(token)" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TOGETHER, SEPARATE),
        ("torch.cat([self.cache_k, k], dim=1)", "torch.cat((self.cache_k, k), 1)"),
        ("self.mask.bool()[self", "self.mask[self"),
        ("torch.triu(torch.ones(length, length), diagonal=1)",
         "torch.triu(torch.ones(length, length, dtype=torch.bool), 1).bool()"),
        ('self.register_buffer("cache_k", None, persistent=False)', "self.cache_k = None"),
        ("        if use_cache:\n            if self.cache_k is None",
         "        if self.caches:\n            if self.cache_k is None"),
        (MASKED, "        scores = scores.masked_fill(hidden, float('-inf'))\n"),
        (MASKED, f"        scores = scores / 2\n{MASKED}"),
        (WEIGHED, "        weights = (scores * 0.5).softmax(dim=-1)\n"),
        ("        weights = self.dropout(weights)\n", ""),
        ("keys.transpose(2, 3)", "keys.mT"),
        ("q.transpose(1, 2) @ keys.mT", "torch.matmul(q.transpose(1, 2), keys.mT)"),
        ("        scores = q.tr", "        keys = keys.repeat_interleave(2, dim=1)\n"
         "        scores = q.tr"),
        ("            keys, values = k, v\n",
         "            keys, values = k, v\n            if self.cache_k is not None:\n"
         "                self.cache_k, self.cache_v = None, None\n"
         "                self.position = 0\n"),
    ],
)  # fmt: skip
def test_other_forms(old: str, new: str) -> None:
    source = MODEL.replace("keys.transpose(2, 3)", "keys.mT") if old not in MODEL else MODEL
    assert old in source
    source = source.replace(old, new)
    if "self.caches" in new:
        source = source.replace(TOLD, TOLD.replace("use_cache", "self.caches"))
    text = edited(source)
    assert "self.cache_k[:, at] = k" in text and "[at, :count]" in text
    assert "torch.cat([self" not in text


@pytest.mark.parametrize(("dim", "key", "shape"), [
    ("2", ":, :, at", "*k.shape[:2], self.mask.shape[-1], *k.shape[3:]"),
    ("-2", "..., at, :", "*k.shape[:-2], self.mask.shape[-1], k.shape[-1]"),
])  # fmt: skip
def test_dimensions(dim: str, key: str, shape: str) -> None:
    text = edited(MODEL.replace("dim=1)\n  ", f"dim={dim})\n  "))
    assert f"self.cache_k[{key}] = k" in text and f"torch.arange(k.shape[{dim}]," in text
    assert f"k.new_zeros({shape})" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[self.cache_k, k], dim=1", "[k, self.cache_k], dim=1"),
        ("[self.cache_k, k], dim=1", "[self.cache_k, k], dim=-1"),
        ("[self.cache_k, k], dim=1", "[self.cache_k, k], dim=2"),
        ("dim=1)\n  ", "dim=-3)\n  "),
        ("        self.cache_k, self.cache_v = None, None\n", ""),
        ("        self.cache_k, self.cache_v = None, None\n", "        self.cache_k = None\n"),
        ("self.cache_k, self.cache_v = None, None\n", "self.cache_k, self.q = None, None\n"),
        ("None, None\n        self.position = 0\n", "None, None\n"),
        ("None, None\n        self.position = 0\n",
         "None, None\n\n    def begin(self):\n        self.position = 0\n"),
        ("@torch.no_grad()\n", ""),
        ("[self.cache_k, k]", "[self.cache_k, k / 2]"),
        (TOGETHER, "                self.cache_k, self.cache_v = k, k\n"),
        ("if self.cache_k is None", "if self.cache_k is None or b > 1"),
        (READ, f"            print(self.cache_k.sum())\n{READ}"),
        (READ, f"            self.cache_k = self.cache_k[:, -4:]\n{READ}"),
        ("        scores = q.tr", "        print(keys.sum())\n        scores = q.tr"),
        ("        scores = q.tr", "        keys = keys.view(b, 2, -1, 4)\n        scores = q.tr"),
        ("        scores = q.tr", "        keys = self.rotated(keys)\n        scores = q.tr"),
        (HIDDEN, HIDDEN.replace("self.position : self.position + n", "1 : n + 1")),
        (HIDDEN, HIDDEN.replace("self.position : self.position + n", "self.position :")),
        (HIDDEN, HIDDEN.replace(":count", ":n")),
        (HIDDEN, HIDDEN.replace("position + n", "position + queries")),
        (HIDDEN + GROWS, GROWS + HIDDEN),
        (GROWS, GROWS.replace("+= n", "+= 1")),
        (GROWS, f"{GROWS}            n = 1\n"),
        (TOLD, TOLD.replace("use_cache", "use_cache and n > 1")),
        ("diagonal=1)", "diagonal=0)"),
        ("torch.triu(", "torch.tril("),
        ("torch.ones(length, length)", "torch.ones(length, 2 * length)"),
        ("torch.ones(length, length)", "torch.ones(length, length, device='cuda')"),
        ('self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))',
         "self.mask = torch.triu(torch.ones(length, length), diagonal=1)"),
        (MASKED, ""),
        (MASKED, MASKED.replace("-torch.inf", "-1e9")),
        (MASKED, f"        if n > 1:\n    {MASKED}"),
        (MASKED, f"{MASKED}        scores = scores + self.bias\n"),
        (MASKED, f"{MASKED}        print(scores.sum())\n"),
        (WEIGHED, WEIGHED.replace("dim=-1", "dim=1")),
        (WEIGHED, WEIGHED.replace("scores /", "scores.abs() /")),
        ("        weights = self.dropout(weights)\n", "        self.weights = weights\n"),
        ("(weights @ values)", "(weights.sum() + weights @ values)"),
        ("        return (weights", "        x = keys.mean()\n        return x + (weights"),
        ("        self.position = 0\n\n\nclass", "        self.position = 1\n\n\nclass"),
        ("        self.position = 0\n\n\nclass", "        self.position -= 1\n\n\nclass"),
        ("        self.position = 0\n\n    def", "        self.position = 0.0\n\n    def"),
        (RESET, "        print(self.attention.position)\n"),
        (RESET, "        print(self.attention.cache_k)\n"),
        (RESET, "        getattr(self.attention, 'position')\n"),
        ("        self.cache_k, self.cache_v = None", "        self.cache_k, self.cache_v = 1"),
        ('        self.register_buffer("cache_k", None, persistent=False)\n', ""),
        ("class Attention(nn.Module)", "class Attention(Base)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", TARGETS)
def test_what_only_looks_like_it(target: str, old: str, new: str) -> None:
    assert old in MODEL
    text = edited(MODEL.replace(old, new), target)
    assert "cache_k = torch.cat(" in text and "cache_v = torch.cat(" in text
    assert "at = " not in text and "torch.tensor(0)" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.seen += n\n", "self.seen += n\n            print(self.seen)\n"),
        ("torch.arange(self.seen, self.seen + n,", "torch.arange(self.seen, self.seen + n, 1,"),
        (f"{RESET}        self.seen = 0", "        self.attention.seen = 0"),
    ],
)  # fmt: skip
def test_another_counter_stays_a_number(old: str, new: str) -> None:
    """That is as right as it was, and the cache needs its own."""
    assert old in MODEL
    text = edited(MODEL.replace(old, new))
    assert "self.cache_k[:, at] = k" in text and 'register_buffer("seen"' not in text


def test_what_is_read_at_a_counter() -> None:
    table = MODEL.replace(
        "places = torch.arange(self.seen, self.seen + n, device=tokens.device)",
        "places = self.table[self.seen : self.seen + n]",
    )
    at = "self.seen + torch.arange(n, device=self.table.device)"
    assert f"places = self.table[{at}]" in edited(table)


def test_a_counter_alone_stays_a_number() -> None:
    """Without a cache in its file, nothing tells that positions are the programs' trouble."""
    assert "self.seen = 0" in edited(MODEL.replace("torch.triu", "torch.tril"))


def test_without_unsafe_it_is_advice() -> None:
    result = run(MODEL, "torch_xla")
    assert b"torch.cat([self.cache_k" in result.source
    said = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert sum(d.code == "TOK003" and "--unsafe" in d.message for d in said) == 1
