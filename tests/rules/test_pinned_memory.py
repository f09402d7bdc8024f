"""MOV004: options of a loader, and dictionaries that only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import TARGETS, migrated, reported, run, write_tree

from migrator import migrate_paths
from migrator.diagnostics import Severity

WRITTEN = (
    'options["pin_memory"] = pinned\nprint(json.dumps({"offload": options}))\n',
    'config = {"pin_memory": True}\nwith open("c", "w") as file:\n    json.dump(config, file)\n',
    'config = json.load(file)\nconfig["pin_memory"] = config.get("pin_memory", True)\n'
    "json.dump(config, file)\n",
    'config = json.load(file)\nconfig["zero"]["offload"]["pin_memory"] = pinned\n'
    'if config["lr"] > 1:\n    config["lr"] = config["lr"] / 2\njson.dump(config, file)\n',
    'def make():\n    return {"pin_memory": True}\n\n\njson.dump(make(), file)\n',
    'def make():\n    made = {"pin_memory": pinned}\n    return made\n\n\n'
    "def write():\n    made = make()\n    print(made)\n\n\nprint(json.dumps(make()))\n",
    'every = {}\nevery["loader"] = {"pin_memory": True}\njson.dump(every, file)\n',
    'def write():\n    each = {"pin_memory": pinned}\n    every = [each]\n    print(every)\n',
)
LOADED = (
    'options["pin_memory"] = True\nloader = DataLoader(data, **options)\nprint(options)\n',
    'config = json.load(file)\nconfig["loader"]["pin_memory"] = True\n'
    'loader = DataLoader(data, **config["loader"])\njson.dump(config, file)\n',
    'def make():\n    return {"pin_memory": True}\n',
    'def make():\n    return {"pin_memory": True}\n\n\n'
    "json.dump(make(), file)\nloader = DataLoader(data, **make())\n",
    'def make():\n    return {"pin_memory": True}\n\n\nprint(make())\ntrain(make)\n',
    'class Own:\n    def make(self):\n        return {"pin_memory": True}\n\n\n'
    "print(Own().make())\n",
    'every = {}\nevery["loader"] = {"pin_memory": True}\nprint(every)\n'
    'DataLoader(data, **every["loader"])\n',
    'config = {"pin_memory": True}\ntrain(config)\n',
    'class Config:\n    options = {"pin_memory": True}\n',
)
HEAD = "import json\nfrom torch.utils.data import DataLoader\nimport torch\n\noptions = {}\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_only_written_as_text_stays(text: str, target: str) -> None:
    assert migrated(HEAD + text, target) == HEAD + text


@pytest.mark.parametrize("target", ["torchax", "torch_xla"])
@pytest.mark.parametrize("text", LOADED)
def test_what_may_reach_a_loader_pins_nothing(text: str, target: str) -> None:
    assert migrated(HEAD + text, target) == HEAD + text.replace("True", "False")


@pytest.mark.parametrize("target", TARGETS)
def test_files_without_torch_keep_their_settings(tmp_path: Path, target: str) -> None:
    texts = [*LOADED[2:], "d = dict(pin_memory=True)\nf.write(dumps(d))\n"]
    root = write_tree(tmp_path, {f"a{n}.py": text for n, text in enumerate(texts)})
    assert not migrate_paths([root], target).changed


def test_advice_on_a_loader_is_the_same_without_pinned_memory() -> None:
    head = "from torch.utils.data import DataLoader\nimport torch\n\nmodel.cuda()\n"
    text = f"{head}train_loader = DataLoader(data, batch_size=4, shuffle=True{{}})\n"

    def advice(source: str) -> list[str]:
        return [d.code for d in run(source).diagnostics if d.severity is Severity.ADVICE]

    assert advice(text.format("")) == ["ADV004", "ADV005", "ADV006"]
    assert advice(text.format(", pin_memory=True")) == ["ADV004", "ADV005", "ADV006"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_question_that_stays_false_pins_nothing(target: str) -> None:
    """nnUNet gives it to a loader of another library."""
    source = """import torch
from elsewhere import Loader

loader = Loader(data, pin_memory=device.type == "cuda")
x = torch.ones(1, device=device)
"""
    result = run(source, target)
    assert result.source.decode() == source and not reported(result)
    assert reported(run(source.replace('device.type == "cuda"', "True"), target))
