"""Checkpoints with the command line's arguments, which another file of the project saves."""

from pathlib import Path

import pytest
import torch
from helpers import cli, constructs, run, write_tree

TRAIN = """import argparse
import torch

args = argparse.ArgumentParser().parse_args()
model = torch.nn.Linear(3, 3).cuda()
torch.save({"model": model.state_dict(), "args": args}, "last.pt")
"""
MISC = """import torch


def save_on_master(*given):
    torch.save(*given)


def save_model(args, model, path):
    to_save = {"model": model.state_dict(), "args": args}
    save_on_master(to_save, path)
"""
USE = """import torch

model = torch.nn.Linear(3, 3).cuda()
"""
ASSIGNED = 'checkpoint = torch.load(path)\nmodel.load_state_dict(checkpoint["model"])\n'
AT_ONCE = 'model.load_state_dict(torch.load(path)["model"])\n'


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({"train.py": TRAIN, "use.py": USE + ASSIGNED}, True),
        ({"train.py": TRAIN, "use.py": USE + AT_ONCE}, True),
        ({"train.py": TRAIN, "use.py": USE + AT_ONCE.replace('"model"', '"ema"')}, False),
        ({"train.py": TRAIN.replace(', "args": args', ""), "use.py": USE + ASSIGNED}, False),
        ({"util/misc.py": MISC, "use.py": "import util.misc\n" + USE + ASSIGNED}, True),
        ({"train.py": TRAIN, "scripts/use.py": USE + ASSIGNED}, True),
        ({"train.py": TRAIN, "use.py": USE + "names = torch.load(path)\n"}, False),
        ({"use.py": USE + MISC.partition("\n\n")[2] + AT_ONCE}, True),  # in the file itself
    ],
)
def test_it_is_loaded_as_before(tmp_path: Path, files: dict[str, str], is_told: bool) -> None:
    root = write_tree(tmp_path / "p", files)
    cli(root, "--target", "torchax", "--allow-dirty", cwd=root)
    name = next(name for name in files if name.endswith("use.py"))
    assert ("weights_only=False" in (root / name).read_text()) is is_told


def test_pytorch_refuses_it_unless_it_is_told(tmp_path: Path) -> None:
    import argparse

    torch.save({"model": {}, "args": argparse.Namespace()}, tmp_path / "last.pt")
    with pytest.raises(Exception, match="weights_only"):
        torch.load(tmp_path / "last.pt")
    assert torch.load(tmp_path / "last.pt", weights_only=False)["model"] == {}


def test_keys_that_nobody_saves_with_more_are_no_construct() -> None:
    source = (
        "import torch\nx = torch.ones(2).cuda()\nck = torch.load('a.pt', map_location='cpu')\n"
        "model.load_state_dict(ck['model'])\n"
    )
    found = constructs(run(source))
    assert [d.code for d in found] == ["MOV001", "IOS001"]
