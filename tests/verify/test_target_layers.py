"""`verify --layers`: the first layer that leaves its bound, in a model with planted faults."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers import COPY
from rich.console import Console
from target import TARGET

from migrator import migrate_paths
from migrator.verify import goldens
from migrator.verify.layer_tree import Layer
from migrator.verify.originals import record_script
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_table import body, numbers
from migrator.verify.script_verification import verify_against

from .small_scripts import ON_TARGET

SCRIPT = """\
import torch
from torch import nn


class Scaled(nn.Module):
    def forward(self, x):
        return x * 0.5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.scaled = Scaled()
        self.down = nn.Linear(6, 4)

    def forward(self, x):
        return x + self.down(self.scaled(torch.relu(self.up(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.blocks(x))


net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    loss = net(torch.randn(3, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SETTINGS = RecordSettings(roundings=1, layers=True)
Verify = Callable[..., ScriptResult]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script, and its golden with layers."""
    folder = tmp_path_factory.mktemp("layers")
    (folder / "train.py").write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        output = folder.parent / f"{folder.name}-golden"
        record_script(Path("train.py"), [], output, Path(sys.executable), SETTINGS)
    return folder


@pytest.fixture
def verify(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    monkeypatch.chdir(folder)

    def run(old: str = "", new: str = "") -> ScriptResult:
        options = RunOptions(python=Path(sys.executable), migrate=partial(_with, old, new))
        golden = folder.parent / f"{folder.name}-golden"
        return verify_against(Path("train.py"), [], ON_TARGET, golden, SETTINGS, options)

    return run


def _with(old: str, new: str, source: Path, target: str, to: Path) -> list[str]:
    """The migration, with a fault in what it writes."""
    report = migrate_paths([source], target=target, config=COPY, output=to)
    text = (to / "train.py").read_text()
    assert old in text
    (to / "train.py").write_text(text.replace(old, new))
    return report.errors


def printed(result: ScriptResult) -> str:
    out = io.StringIO()
    body(result, Console(file=out, width=120))
    return out.getvalue()


def paths(layer: Layer, above: str = "") -> dict[str, Layer]:
    path = f"{above}{layer.name}"
    found = {path: layer}
    for child in layer.children.values():
        found |= paths(child, f"{path}.")
    return found


def test_every_module_is_compared(verify: Verify) -> None:
    result = verify()
    assert result.passed, (result.error, result.problems, result.stepwise.first, result.log_tail)
    assert result.layers is not None and result.layers.first is None
    (model,) = result.layers.models
    found = paths(model)
    block = {f"Net.blocks.{n}{part}" for n in (0, 1) for part in ("", ".up", ".scaled", ".down")}
    assert {*found} == {"Net", "Net.blocks", "Net.head", *block}
    assert {*found["Net.blocks.1.up"].findings} == {
        "output",
        "gradient",
        "parameters' gradients",
    }
    assert {*found["Net.blocks.1.scaled"].findings} == {"output", "gradient"}
    assert {f.step for f in found["Net.blocks.0"].findings["output"]} == {0, 1}
    assert result.to_dict()["layers"]["models"][0]["children"][0]["name"] == "blocks"
    if TARGET == "torchax":
        assert result.compiled.findings  # the run as it will run, too


def test_the_first_layer_with_another_output_is_named(verify: Verify) -> None:
    result = verify("return x * 0.5", "return x")
    assert not result.passed and result.layers is not None
    first = result.to_dict()["layers"]["first"]
    assert (first["path"], first["kind"], first["step"]) == ("Net.blocks.0.scaled", "output", 1)
    assert first["line"].startswith("train.py:")
    said = [line for line in printed(result).splitlines() if "the first beyond its bound" in line]
    assert len(said) == 1 and "scaled" in said[0]


def test_a_gradient_that_is_lost_is_named(verify: Verify) -> None:
    """All outputs of the first step are right."""
    result = verify("return x + self.down", "return x.detach() + self.down")
    assert not result.passed and result.layers is not None
    first = result.to_dict()["layers"]["first"]
    assert (first["kind"], first["step"]) == ("gradient", 1)
    assert first["path"] == "Net.blocks.0" and first["from"][0] == "Net.blocks.1"
    said = [line for line in printed(result).splitlines() if "the first beyond its bound" in line]
    assert len(said) == 1 and "gradient, from Net.blocks.1" in said[0]
    (model,) = numbers(result).layers
    block = model.children[0].children[0]
    assert block.mark.startswith("the first beyond its bound: gradient") and not block.passed
    assert [each.mark for each in model.children] == ["", ""]


def test_a_gradient_that_a_layer_sends_back_is_named(verify: Verify) -> None:
    """It has no parameters, its output is right, and that output is used right."""
    once = "return x * 0.25 + (x * 0.25).detach()"
    result = verify("return x * 0.5", once)
    assert result.layers is not None
    first = result.to_dict()["layers"]["first"]
    assert (first["path"], first["kind"]) == ("Net.blocks.1.up", "gradient")
    assert first["from"] == ["Net.blocks.1"]  # by a function, whose result `scaled` is given


def test_a_gradient_that_comes_from_nowhere_is_named(verify: Verify) -> None:
    result = verify("return self.head(self.blocks(x))", "return self.head(self.blocks(x).detach())")
    assert result.layers is not None and result.layers.first is not None
    assert result.layers.path == "Net.blocks" and result.layers.takers == ["Net.head"]
    assert result.layers.first.reason == "there is no gradient"


def test_a_golden_of_layers_without_gradients_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As an earlier version recorded it: its missing gradients are no difference."""
    monkeypatch.chdir(folder)
    older = shutil.copytree(folder.parent / f"{folder.name}-golden", tmp_path / "older")
    whole = json.loads((older / "golden.json").read_text())
    whole.pop("sha256")
    whole["settings"]["layers"] = True
    whole["sha256"] = goldens._digest(whole, older)
    (older / "golden.json").write_text(json.dumps(whole))
    options = RunOptions(python=Path(sys.executable))
    result = verify_against(Path("train.py"), [], ON_TARGET, older, SETTINGS, options)
    assert result.error is not None and "\n" not in result.error
    assert "by an earlier version: record it again, with --layers" in result.error


def test_a_golden_without_layers_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    output = folder.parent / f"{folder.name}-bare"
    record_script(Path("train.py"), [], output, Path(sys.executable), RecordSettings(roundings=0))
    options = RunOptions(python=Path(sys.executable))
    result = verify_against(Path("train.py"), [], ON_TARGET, output, SETTINGS, options)
    assert result.error is not None and "record it again, with --layers" in result.error
