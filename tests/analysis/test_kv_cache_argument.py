"""Caches that attention is given and returns: the known form, and what only looks like it.

That the tokens stay the same is shown by tests/runtime/test_own_caches.py.
"""

from __future__ import annotations

import pytest
from given_cache import FUSED, MASKED, MODELS, STACKED
from helpers import TARGETS, run

from migrator.diagnostics import Severity

CAUSAL = "is_causal=past is None and T > 1"
ATTENDS = "        y = F.scaled"
MASKS = "        scores = scores.masked_fill("
PRESENT = "        present = (k, v) if use_cache else None\n"
GIVEN = "            x, present = block(x, past, use_cache)\n"
PLACES = "torch.arange(past_length, past_length + n, device=tokens.device)"
LENGTH = "past_length = pasts[0][0].size(-2)\n"
LOOP = "        given = logits"


def edited(source: str, target: str = "torchax") -> str:
    return run(source, target, unsafe=True).source.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_the_form(target: str) -> None:
    text = edited(FUSED, target)
    assert (
        "        at = torch.arange(k.shape[2], device=k.device)\n"
        "        if past is not None:\n"
        "            at = past[2] + at\n"
        "            k = past[0].index_copy(2, at, k)\n"
        "            v = past[1].index_copy(2, at, v)\n"
        "        rest = (0, 0, 0, self.cache_length - k.shape[2])\n"
        "        present = (F.pad(k, rest), F.pad(v, rest), at[-1] + 1) if use_cache else None\n"
        "        seen = None if past is None else "
        "torch.arange(k.shape[-2], device=k.device)[None] <= at[-1]\n"
    ) in text
    assert f"{CAUSAL}, attn_mask=seen)" in text
    assert "super().__init__()\n        self.cache_length = config['length']\n" in text
    assert "past_length = pasts[0][2]\n" in text
    assert "places = past_length + torch.arange(n, device=tokens.device)\n" in text


def test_a_table_is_read_at_the_positions() -> None:
    text = edited(MASKED)
    assert "past_keys, past_values = past[:2]\n" in text
    assert "masked_fill(self.mask[at, :m] == 0," in text
    assert "self.mask.shape[-1] - k.shape[2])" in text and "cache_length" not in text


def test_scores_in_a_method_of_their_own() -> None:
    text = edited(STACKED)
    assert (
        "y = self.attend(q, k, v, at=at)" in text and "def attend(self, q, k, v, at=None)" in text
    )
    assert "b = self.mask[:, :, at, :ns]" in text
    assert "k = past_key.index_copy(-1, at, k)" in text
    assert "past_key, past_value = past[0][0].transpose(-2, -1), past[0][1]\n" in text
    assert "present = (F.pad(torch.stack((k.transpose(-2, -1), v)), rest), at[-1] + 1)" in text
    assert "at = past[1] + at\n" in text and "past_length = pasts[0][1]\n" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (CAUSAL, "is_causal=past is None"),
        (f"{ATTENDS}", f"        causal = past is None\n{ATTENDS}"),
        (f"{ATTENDS}", "        if past is not None:\n            causal = False\n        else:\n"
         f"            causal = True\n{ATTENDS}"),
        (CAUSAL, f"dropout_p=0.0, {CAUSAL}, scale=0.5"),
        (ATTENDS, f"        k, v = k.contiguous(), v.contiguous()\n{ATTENDS}"),
        (PRESENT, "        present = None\n        if use_cache:\n            present = (k, v)\n"),
        ("        return y.transpose(1, 2).reshape(B, T, C), present",
         "        return y.transpose(1, 2).reshape(B, T, C), (k, v)"),
        ("            k = torch.cat([past[0]", "            assert T == 1\n"
         "            k = torch.cat([past[0]"),
        (PLACES, "torch.arange(past_length, n + past_length)"),
        (f"        places = {PLACES}\n        x = self.tokens(tokens) + self.places(places)",
         f"        places = {PLACES}\n        z = self.table[past_length : past_length + n]\n"
         "        x = self.tokens(tokens) + self.places(places) + z"),
        ("        else:\n            past_length = pasts[0][0].size(-2)\n",
         "        past_length = 0 if pasts[0] is None else pasts[0][0].shape[2]\n"),
    ],
)  # fmt: skip
def test_other_forms(old: str, new: str) -> None:
    assert old in FUSED
    source = FUSED.replace(old, new)
    if "causal = " in new:
        source = source.replace(CAUSAL, "is_causal=causal")
    if "return" in new:
        source = source.replace(PRESENT, "")
    text = edited(source)
    assert "past[0].index_copy(2, at, k)" in text and "attn_mask=seen" in text
    assert "torch.cat([past" not in text and "past_length + torch.arange(n" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[past[0], k], dim=2", "[k, past[0]], dim=2"),
        ("[past[0], k], dim=2", "[past[0], k], dim=1"),
        ("[past[0], k], dim=2", "[past[1], k], dim=2"),
        ("[past[0], k], dim=2", "[past[0], k.float()], dim=2"),
        ("past=None, use_cache=False):\n        B", "past, use_cache=False):\n        B"),
        ("        if past is not None:\n            k", "        if past:\n            k"),
        ("            k = torch.cat([past[0]", "            print(past[0])\n"
         "            k = torch.cat([past[0]"),
        ("[past[1], v], dim=2)\n", "[past[1], v], dim=2)[:, :, -8:]\n"),
        (PRESENT, "        k = k[:, :, -8:]\n        present = (k, v)\n"),
        (PRESENT, "        present = (v, k)\n"),
        (PRESENT, "        present = (k, v)\n        self.present = present\n"),
        (PRESENT, "        present = (k, v)\n        print(present[0].sum())\n"),
        (CAUSAL, "is_causal=T > 1"),
        (CAUSAL, "is_causal=past is None or T > 1"),
        (CAUSAL, f"attn_mask=mask, {CAUSAL}"),
        (f", {CAUSAL}", ""),
        (ATTENDS, f"        x = k.mean()\n{ATTENDS}"),
        (ATTENDS, f"        k = self.rotated(k)\n{ATTENDS}"),
        (ATTENDS, f"        m = k.shape[2]\n        q = q / m\n{ATTENDS}"),
        (LENGTH, LENGTH + "            print(past_length)\n"),
        (LENGTH, LENGTH.replace("\n", " + 1\n")),
        (LENGTH, "past_length = 3\n"),
        (PLACES, "torch.arange(past_length, 2 * past_length)"),
        (PLACES, "torch.arange(past_length, past_length + n, 1)"),
        (GIVEN, "            past = past and tuple(p[:, :, -8:] for p in past)\n" + GIVEN),
        (GIVEN, GIVEN + "            print(present[0].shape[2])\n"),
        (GIVEN, GIVEN + "            k, v = present\n"),
        (LOOP, "        pasts = [tuple(p[order] for p in past) for past in pasts]\n" + LOOP),
        (LOOP, "        pasts = torch.stack(pasts)\n" + LOOP),
        (LOOP, "        if pasts[0][0].shape[2] > 8:\n            break\n" + LOOP),
        (LOOP, "        size = model.other[0][0].shape[2]\n" + LOOP),
        ("self.places = nn.Embedding(config", "self.places = Places(config"),
        ('nn.Embedding(config["length"]', "nn.Embedding(64"),
        ("class Attention(nn.Module)", "class Attention(Base)"),
    ],
)  # fmt: skip
def test_what_only_looks_like_it(old: str, new: str) -> None:
    assert old in FUSED
    text = edited(FUSED.replace(old, new))
    assert "index_copy" not in text and text.count("torch.cat(") == FUSED.count("torch.cat(")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.mask[m - T : m, :m] == 0", "self.mask[m - T : m, :m] == 1"),
        ("self.mask[m - T : m, :m] == 0", "self.mask[m - 1 : m, :m] == 0"),
        ("self.mask[m - T : m, :m] == 0", "self.mask[:T, :m] == 0"),
        ("self.mask[m - T : m, :m] == 0", "self.mask[m - C : m, :m] == 0"),
        ('float("-inf")', "0.0"),
        ("torch.tril(", "torch.triu("),
        ("torch.ones(length, length)", "torch.ones(length, 2 * length)"),
        (MASKS, f"        if past is None:\n    {MASKS}"),
        (MASKS, f"        scores = scores + m\n{MASKS}"),
        ("F.softmax(scores, dim=-1)", "F.softmax(scores, dim=1)"),
        ("F.softmax(scores, dim=-1)", "scores.sum() * F.softmax(scores, dim=-1)"),
    ],
)
def test_other_masks(old: str, new: str) -> None:
    assert old in MASKED
    text = edited(MASKED.replace(old, new))
    assert "index_copy" not in text and "torch.cat([past_keys, k]" in text


def test_scores_that_are_called_elsewhere() -> None:
    twice = "        y = self.attend(q, k, v) + self.attend(q, k, v)\n"
    text = edited(STACKED.replace("        y = self.attend(q, k, v)\n", twice))
    assert "index_copy" not in text
    sized = STACKED.replace("w = w / v.size(-1)", "w = w / k.size(-1)")  # the number of tokens
    assert sized != STACKED and "index_copy" not in edited(sized)


@pytest.mark.parametrize("name", MODELS)
def test_without_unsafe_it_is_advice(name: str) -> None:
    result = run(MODELS[name], "torch_xla")
    assert b"index_copy" not in result.source
    said = [d for d in result.diagnostics if d.severity is Severity.ADVICE]
    assert sum(d.code == "TOK004" and "--unsafe" in d.message for d in said) == 1
