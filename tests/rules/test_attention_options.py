"""LIB008: options of transformers that ask for flash_attn."""

from __future__ import annotations

import pytest
from helpers import TARGETS, constructs, migrated, run

from migrator.diagnostics import Outcome

FLASH = "flash_attention_2"
ASKS = (
    'model = AutoModel.from_pretrained(name, attn_implementation="{}")\n',
    'options = {{"attn_implementation": "{}"}}\n',
    'options["attn_implementation"] = "{}"\n',
    "config._attn_implementation = '{}'\n",
    'kind = dict(attn_implementation="{}" if fast else "eager")\n',
    'def load(name, attn_implementation="{}"):\n    pass\n',
    'class Options:\n    attn_implementation: str = field(default="{}")\n',
    'parser.add_argument("--attn-implementation", default="{}")\n',
    'model.set_attn_implementation("{}")\n',
)
SAYS = (
    f'if config._attn_implementation == "{FLASH}":\n    print("fast")\n',
    f'KINDS = ["{FLASH}", "eager"]\n',
    f'CLASSES = {{"{FLASH}": Fast, "eager": Slow}}\n',
    f'parser.add_argument("--attn_implementation", default="eager", choices=["{FLASH}", "e"])\n',
    f'"""Takes {FLASH}."""\n',
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("asked", [FLASH, "flash_attention_3", "kernels-community/flash-attn2"])
@pytest.mark.parametrize("line", ASKS)
def test_a_model_is_asked_for_torchs_attention(line: str, asked: str, target: str) -> None:
    text = line.format(asked)
    assert migrated(text, target) == line.format("sdpa")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", SAYS)
def test_what_asks_for_nothing_stays(text: str, target: str) -> None:
    result = run(text, target)
    assert not result.changed and not constructs(result)


@pytest.mark.parametrize("rest", ["", f', attn_implementation="{FLASH}"'])
def test_the_older_flag_becomes_the_option(rest: str) -> None:
    text = f"model = AutoModel.from_pretrained(name, use_flash_attention_2=True{rest})\n"
    expected = 'model = AutoModel.from_pretrained(name, attn_implementation="sdpa")\n'
    assert migrated(text, "torchax") == expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("path", "text", "yes", "no"),
    [
        ("a.py", 'options = {{"use_flash_attention_2": {}, "n": 2}}\n', "True", "False"),
        ("a.py", 'options["use_flash_attention_2"] = {}\n', "True", "False"),
        ("a.py", "options = dict(use_flash_attention_2={})\n", "True", "False"),
        ("a.yaml", "model:\n  use_flash_attention_2: {}  # on GPUs\n", "true", "false"),
        ("a.yaml", "model: {{use_flash_attention_2: {}, layers: 2}}\n", "True", "False"),
        ("a.json", '{{"use_flash_attention_2": {},\n "layers": 2}}\n', "true", "false"),
        ("a.toml", "[model]\nuse_flash_attention_2 = {}\n", "true", "false"),
    ],
)
def test_the_older_flag_in_dictionaries_and_settings(
    path: str, text: str, yes: str, no: str, target: str
) -> None:
    result = run(text.format(yes), target, path=path)
    assert result.source.decode() == text.format(no)
    assert not constructs(run(text.format(no), target, path=path))


def test_a_computed_flag_in_a_dictionary_is_reported() -> None:
    (found,) = constructs(run('options = {"use_flash_attention_2": args.fast}\n'))
    assert found.outcome is Outcome.REPORTED and "sdpa" in found.message


def test_reading_the_flag_is_nothing() -> None:
    assert not constructs(run('if options["use_flash_attention_2"]:\n    print("fast")\n'))


def test_another_name_is_reported() -> None:
    (found,) = constructs(run(f'backend = "{FLASH}"\n'))
    assert found.outcome is Outcome.REPORTED and "sdpa" in found.message


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("config.yaml", "model:\n  attn_implementation: {}  # on GPUs\n"),
        ("config.yaml", "model: {{_attn_implementation: '{}', layers: 2}}\n"),
        ("config.json", '{{"attn_implementation": "{}", "layers": 2}}\n'),
        ("run.sh", "python train.py --attn_implementation {} --epochs 2\n"),
        ("run.sh", "python train.py --attn-implementation='{}'; echo done\n"),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_settings_and_commands(target: str, path: str, text: str) -> None:
    result = run(text.format(FLASH), target, path=path)
    assert result.source.decode() == text.format("sdpa")


def test_a_device_and_the_attention_in_one_command() -> None:
    text = f"python train.py --device cuda --attn_implementation {FLASH}\n"
    result = run(text, "torchax", path="run.sh")
    assert result.source.decode() == "python train.py --device jax --attn_implementation sdpa\n"
