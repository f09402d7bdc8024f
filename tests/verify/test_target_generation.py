"""Scripts that make text on the real target of this environment: own loops, and transformers'."""

import sys
from pathlib import Path

import pytest
import torch
from given_cache import MODELS
from helpers import REPOSITORY
from target import TARGET
from tiers import thorough_on

from migrator.targets import find_target
from migrator.verify import verify_app
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

SCRIPT = """\
import torch
from torch import nn


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(19, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 19)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = self.layer(self.words(tokens) * 9, MASK)
        return self.head(x)


model = GPT().cuda().eval()
tokens = torch.tensor([[3, 5, 7], [2, 4, 6]]).cuda()
with torch.no_grad():
    for _ in range(6):
        logits = model(tokens)
        tokens = torch.cat((tokens, logits[:, -1].argmax(-1, keepdim=True)), dim=1)
print(tokens.tolist())
"""


GENERATING = """\
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1, max_position_embeddings=128, pad_token_id=0, eos_token_id=2,
)
torch.manual_seed(0)
model = LlamaForCausalLM(config).eval().cuda()
tokens = torch.tensor([[3, 5, 7], [9, 4, 6]]).cuda()
print(model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=4).tolist())
"""


def verify(folder: Path, mask: str, script: str = SCRIPT) -> ScriptResult:
    (folder / "t.py").write_text(script.replace("MASK", mask), encoding="utf-8")
    options = RunOptions(python=Path(sys.executable), unsafe=True)
    settings = RecordSettings(roundings=1)
    return verify_against(Path("t.py"), [], find_target(TARGET), None, settings, options)


@thorough_on("torchax")
def test_text_in_a_buffer_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model is given and gives is compared without the padding."""
    monkeypatch.chdir(tmp_path)
    result = verify(tmp_path, "mask.to(tokens.device), is_causal=True")
    assert result.passed, result


@pytest.mark.thorough
def test_a_model_that_looks_at_the_padding_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = verify(tmp_path, "None")
    assert result.error is None and not result.passed
    assert result.stepwise.first is not None and result.stepwise.first.kind == "output"


@pytest.mark.thorough(f"generate on {TARGET}")
def test_three_ways_to_make_text_agree_with_the_golden() -> None:
    result = verify_app("generate", TARGET, python=Path(sys.executable))
    assert result.error is None and result.log_tail is None
    assert [(each.name, each.reason) for each in result.outputs if not each.passed] == []
    assert {each.name for each in result.outputs if each.tolerance.atol == 0} == {
        "gpt.tokens", "llama.tokens", "transformers.tokens"
    }  # fmt: skip


@pytest.mark.thorough
def test_a_prompt_that_is_padded_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = verify(tmp_path, "", GENERATING)
    assert result.passed, result


CACHED = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.keys = torch.zeros(2, 16, 8).cuda()
        self.values = torch.zeros(2, 16, 8).cuda()

    def forward(self, x, start, mask):
        length = x.shape[1]
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys[:, start : start + length] = k
        self.values[:, start : start + length] = v
        scores = q @ self.keys[:, : start + length].mT
        if mask is not None:
            scores = scores + mask
        return scores.softmax(-1) @ self.values[:, : start + length]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.attention = nn.Embedding(19, 8), Attention()
        self.head = nn.Linear(8, 19)

    def forward(self, tokens, start):
        length = tokens.shape[1]
        mask = None
        if length > 1:
            mask = torch.full((length, length), float("-inf"), device=tokens.device).triu(1)
        return self.head(self.attention(self.words(tokens), start, mask))


model = Model().cuda().eval()
tokens = torch.zeros(2, 9, dtype=torch.long).cuda()
tokens[:, :3] = torch.tensor([[3, 5, 7], [2, 4, 6]])
previous = 0
with torch.no_grad():
    for at in range(3, 9):
        logits = model.forward(tokens[:, previous:at], previous)
        tokens[:, at] = logits[:, -1].argmax(-1)
        previous = at
print(tokens.tolist())
"""


@thorough_on("torchax")
def test_a_cache_that_is_written_at_a_tensor_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask that its model no longer makes is not looked for."""
    monkeypatch.chdir(tmp_path)
    result = verify(tmp_path, "", CACHED)
    assert result.passed, result
    assert result.migration is not None
    (file,) = result.migration.files
    assert "position = torch.tensor(previous" in file.result.source.decode()


DIVIDED = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(16, 16)
        self.k_proj = nn.Linear(16, 16)
        self.v_proj = nn.Linear(16, 16)
        self.o_proj = nn.Linear(16, 16)
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (4, 4)).transpose(1, 2)
                   for f in (self.q_proj, self.k_proj, self.v_proj))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        return x + self.fc2(self.fc1(x).relu())


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(19, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 19)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = GPT().cuda().eval()
tokens = torch.tensor([[3, 5, 7], [2, 4, 6]]).cuda()
with torch.no_grad():
    for _ in range(4):
        token = model(tokens)[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat((tokens, token), dim=1)
print(tokens.tolist())
"""


def divided(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> ScriptResult:
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    Path("t.py").write_text(script, encoding="utf-8")
    options = RunOptions(
        python=Path(sys.executable), unsafe=True, devices=2, shard="tp", keep=folder / "kept"
    )
    settings = RecordSettings(roundings=1)
    return verify_against(Path("t.py"), [], find_target(TARGET), None, settings, options)


def test_a_model_that_is_divided_makes_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = divided(tmp_path, monkeypatch, DIVIDED)
    assert result.passed, result
    assert "2 virtual devices" in result.device
    assert not any("--devices changed nothing" in note for note in result.notes)
    assert result.kept is not None
    logs = [log.read_text() for log in result.kept.rglob("output.txt")]
    assert any("GPT on 2 devices: 8 layers column, 4 layers replicated" in log for log in logs)


def test_what_divides_no_model_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would pass on one device, and say nothing of several."""
    result = divided(tmp_path, monkeypatch, GENERATING)
    assert result.error is not None
    assert result.error.startswith("--shard tp divides no model: ")


@pytest.mark.parametrize("name", ["masked", "stacked"])
@pytest.mark.thorough
def test_a_cache_that_is_given_passes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches of full length are compared with those that grow."""
    monkeypatch.chdir(tmp_path)
    text = "torch.tensor([[5, 1, 7], [2, 2, 8]]).cuda()"
    result = verify(tmp_path, "", f"{MODELS[name]}\n\nprint(generate({text}, 6).tolist())\n")
    assert result.passed, result


def test_only_zeros_behind_the_tokens_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "migrator" / "verify" / "recorder"))
    import padding

    def compared(*parts: torch.Tensor) -> dict[str, tuple[int, ...]]:
        named = [(f"1.0.{number}", part) for number, part in enumerate(parts)]
        return {path: tuple(part.shape) for path, part in padding.compared("output", named)}

    keys, count = torch.ones(2, 4, 3, 5), torch.tensor(3)
    longer = torch.nn.functional.pad(keys, (0, 0, 0, 6))
    grown = {"1.0.0": (2, 4, 3, 5), "1.0.1": (2, 4, 3, 5)}
    assert compared(keys, keys) == compared(longer, longer, count) == grown
    assert compared(keys, keys, count) == grown  # as many as there can be
    both = torch.stack((longer, longer))
    assert compared(both, count) == {"1.0": (2, 2, 4, 3, 5)}
    tokens_first = [torch.nn.functional.pad(keys.transpose(1, 2), (0, 0, 0, 0, 0, 6))] * 2
    assert compared(*tokens_first, count) == {"1.0.0": (2, 3, 4, 5), "1.0.1": (2, 3, 4, 5)}
    for alone in (count, keys):
        assert padding.compared("output", [("", alone)]) == [("", alone)]
    longer[0, 0, 8] = 1.0
    assert len(compared(longer, longer, count)) == 3
