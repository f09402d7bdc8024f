"""Anybody's script on the real target of this environment: agreement, and planted faults."""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import COPY
from rich.console import Console
from target import TARGET, WORD
from tiers import thorough_but, thorough_on

from migrator import migrate_paths
from migrator.verify.originals import record_script, trace_original
from migrator.verify.recordings import Recording, RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script import Script
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_table import verdict
from migrator.verify.script_verification import verify_against
from migrator.verify.tolerances import KINDS

from .small_scripts import ON_TARGET, held

OF_TORCH = {*KINDS} - {"metric"}  # which Keras counts

SCRIPT = """\
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.query = nn.Linear(size, size)
        self.out = nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, mask):
        scores = self.query(x) @ x.transpose(1, 2)
        scores = scores.masked_fill(mask, -1e4)
        x = x + self.out(torch.softmax(scores, dim=-1) @ x)
        return self.drop(self.norm(x.transpose(1, 2)).transpose(1, 2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.block = Block(8)
        self.last = nn.Linear(8, 2)

    def forward(self, x, mask):
        return self.last(self.block(self.first(x), mask).mean(1))


net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
mask = torch.triu(torch.ones(5, 5, dtype=torch.bool, device=device), 1)
scale = 1.0
for step in range(4):
    x = torch.randn(6, 5, 3, device=device)
    y = torch.randint(0, 2, (6,)).to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x, mask) * scale, y)
    loss.backward()
    optimizer.step()
    scale = 1.0 + 0.1 * step
    print(f"step {step} loss {loss.item():.5f}")
net.eval()
with torch.no_grad():
    print("mean", net(torch.randn(6, 5, 3, device=device), mask).mean().item())
torch.save({"net": net.state_dict()}, "net.pt")
"""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A golden of the script, recorded by the CPU in the place of a GPU."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        recording, notes = record_script(
            Path("train.py"),
            [],
            folder / "golden",
            Path(sys.executable),
            RecordSettings(roundings=1),
        )
    finally:
        os.chdir(before)
    assert recording.steps == 4
    assert [e["kind"] for e in recording.events].count("loss") == 4
    assert [f["name"] for f in recording.files] == ["net.pt"]
    assert notes == ["dropout is off in all runs (--dropout draws the same masks in all)"]
    return folder / "golden"


@pytest.fixture
def verify(golden: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptResult]:
    monkeypatch.chdir(golden.parent)

    def run(*edits: tuple[str, str], **how: bool) -> ScriptResult:
        options = RunOptions(python=Path(sys.executable), migrate=partial(_with, edits), **how)
        return verify_against(Path("train.py"), [], ON_TARGET, golden, RecordSettings(), options)

    return run


def _with(edits: tuple[tuple[str, str], ...], source: Path, target: str, to: Path) -> list[str]:
    """The migration, with a fault in what it writes."""
    report = migrate_paths([source], target=target, config=COPY, output=to)
    text = (to / "train.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text, text
        text = text.replace(old, new)
    (to / "train.py").write_text(text, encoding="utf-8")
    return report.errors


def test_a_migrated_script_computes_what_the_original_does(
    verify: Callable[..., ScriptResult],
) -> None:
    result = verify()
    assert result.passed, (result.error, result.problems, result.stepwise.first, result.log_tail)
    if TARGET != "torchax":
        assert {f.kind for f in result.stepwise.findings} == OF_TORCH
        return
    assert not result.stepwise.findings  # the compiled run says all
    assert not any("not compiled as a whole" in note for note in result.notes), result.notes
    found = result.compiled
    assert {f.kind for f in found.findings} == OF_TORCH - {"start", "buffers"}
    assert len(found.losses) == 4
    assert {f.step for f in found.findings if f.kind == "gradients"} == {0, 1, 2, 3}
    assert {f.step for f in found.findings if f.kind == "weights"} == {1, 2, 3}
    assert [f.step for f in found.findings if f.kind == "output"] == [4]  # of an evaluation


@pytest.fixture
def longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptResult]:
    """The same script for more steps."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT.replace("range(4)", "range(14)"), encoding="utf-8")

    def run(*edits: tuple[str, str], **how: Any) -> ScriptResult:
        console = Console(file=io.StringIO())  # runs are announced on standard error
        migrate = partial(_with, edits)
        options = RunOptions(python=Path(sys.executable), migrate=migrate, console=console)
        return verify_against(Path("train.py"), [], ON_TARGET, None, RecordSettings(**how), options)

    return run


@pytest.mark.skipif(TARGET != "torchax", reason="nothing is compiled as a whole elsewhere")
@pytest.mark.thorough
def test_a_fault_of_a_late_step_is_found_where_it_is(
    longer: Callable[..., ScriptResult], capsys: pytest.CaptureFixture[str]
) -> None:
    """The run operator by operator says where it shows first, and why it is made."""
    right = longer()
    assert "because operator by operator" not in capsys.readouterr().err
    assert right.passed, (right.error, right.problems, right.stepwise.first, right.compiled.first)
    assert not right.stepwise.findings and len(right.compiled.losses) == 14
    assert {f.step for f in right.compiled.findings if f.kind == "weights"} == {1, 2, 3, 10}
    wrong = longer(("scale = 1.0 + 0.1 * step", "scale = 1.0 + 0.1 * min(step, 11)"))
    assert wrong.exit_code == 1
    assert "because operator by operator it shows where" in capsys.readouterr().err
    for first in (wrong.compiled.first, wrong.stepwise.first):
        assert first is not None and (first.kind, first.step) == ("loss", 13)
    assert {f.kind for f in wrong.stepwise.findings} == OF_TORCH


@thorough_on("torch_xla")
def test_quick_looks_at_the_first_steps_and_says_so(longer: Callable[..., ScriptResult]) -> None:
    found = longer(quick=True)
    assert found.passed, (found.error, found.problems, found.stepwise.first, found.log_tail)
    kinds = {f.kind for f in (*found.compiled.findings, *found.stepwise.findings)}
    unseen = {"start", "buffers", "input", "output"} if TARGET == "torchax" else set()
    assert found.to_dict()["quick"] and len(found.losses) in (5, 6)
    assert kinds == OF_TORCH - {"file", *unseen}
    assert any("--quick did not look at" in note for note in found.notes)
    assert "quick" in verdict(found)


@thorough_on("torch_xla")
def test_a_script_that_chose_the_cpu_shows_nothing_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import sys, torch\nd = 'cuda' if '--gpu' in sys.argv else 'cpu'\n"
    text += "print(torch.nn.Linear(2, 2).to(d)(torch.ones(3, 2).to(d)).sum().item())\n"
    found = held(tmp_path, text, roundings=0)
    assert not found.passed and len(found.problems) == 1
    assert "chose the CPU (its options: --gpu)" in found.problems[0]
    assert held(tmp_path, text, "--gpu", roundings=0).passed


@thorough_on("torch_xla")
def test_a_script_that_is_migrated_already_is_not_compared_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "import torch\nprint(torch.nn.Linear(2, 2).cuda()(torch.ones(3, 2).cuda()).mean().item())\n"
    )
    Path("t.py").write_text(text, encoding="utf-8")
    for folder, is_portable in (("migrated", False), ("either", True)):  # the wheel: not installed
        config = replace(COPY, portable=True, runtime="wheel") if is_portable else COPY
        migrate_paths([tmp_path / "t.py"], TARGET, config=config, output=tmp_path / folder)
        monkeypatch.chdir(tmp_path / folder)
        found = held(Path(), Path("t.py").read_text("utf-8"), roundings=0)
        assert found.passed == is_portable, (found.error, found.problems)
        assert is_portable or "migrated already" in str(found.error)


def test_a_package_that_is_missing_is_named_with_the_interpreter_it_is_missing_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = held(tmp_path, "import torch\nimport nosuch\n", roundings=0)
    assert result.exit_code == 2 and result.error is not None
    assert re.search(rf"{re.escape(sys.executable)} .*\bnosuch, or the package", result.error)


@pytest.mark.skipif(TARGET != "torch_xla", reason="tensors of torchax become arrays")
@pytest.mark.thorough
def test_a_tensor_that_no_gpu_would_give_to_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = held(tmp_path, "import torch\nprint(torch.ones(2).cuda().numpy())\n", roundings=0)
    assert found.problems[0].endswith(
        "(the original raises on a GPU, too: the tensor needs .cpu())"
    )


@thorough_on("torch_xla")
def test_a_device_among_the_arguments_is_that_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import argparse, torch\nparser = argparse.ArgumentParser()\n"
    text += "parser.add_argument('--device', default='cpu')\nargs = parser.parse_args()\n"
    text += "torch.cuda.manual_seed(0)\n"
    text += "print(torch.nn.Linear(2, 2).to(args.device).weight.sum().item())\n"
    found = held(tmp_path, text, "--device", "cuda:0", roundings=0)
    assert found.passed, (found.error, found.problems, found.log_tail)
    assert f"the migrated script is given --device {WORD}" in found.notes


@thorough_on("torchax")
def test_a_recurrent_network_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On torch_xla it is a loop whose backward pass is a graph with tensors that have no values."""
    monkeypatch.chdir(tmp_path)
    text = """\
import torch
net = torch.nn.LSTM(3, 4, 2, batch_first=True).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = net(torch.randn(5, 6, 3).cuda())[0].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    found = held(tmp_path, text, roundings=1)
    assert found.passed, (found.error, found.problems, found.stepwise.first, found.log_tail)
    compared = found.compiled if TARGET == "torchax" else found.stepwise
    assert {"loss", "gradients", "weights"} <= {f.kind for f in compared.findings}


@pytest.fixture(scope="module")
def _originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The operations of the original are recorded once for each step, not for each fault."""
    known: dict[int, tuple[Recording, Recording]] = {}

    def trace(
        script: Script, python: Path, settings: RecordSettings, step: int, *more: object
    ) -> object:
        if step not in known:
            work = tmp_path_factory.mktemp("operations")
            known[step] = trace_original(script, python, settings, step, work, RunOptions())
        return known[step]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("migrator.verify.migrated_runs.trace_original", trace)
        yield


@dataclass(frozen=True)
class Fault:
    """What is planted; where it shows first; what --bisect says."""

    old: str
    new: str
    kind: str
    place: str
    module: str
    operation: str
    what: str
    text: str = ""  # in the line of the migrated script; else that of `new`
    besides: str = ""


FAULTS = {
    "a dropped gradient": Fault(
        "self.first(x), mask)", "self.first(x).detach(), mask)", "gradients", "Net.first",
        "Net", "Tensor.detach", "gradient", besides="only the migrated script has Tensor.detach",
    ),
    "a wrong mask": Fault(
        "masked_fill(mask,", "masked_fill(mask.transpose(0, 1),", "output", "",
        "Net.block", "Tensor.masked_fill", "output", besides="Tensor.transpose",
    ),
    "a product in bfloat16": Fault(
        "self.query(x) @ x.transpose(1, 2)",
        "(self.query(x).bfloat16() @ x.transpose(1, 2).bfloat16()).float()", "output", "",
        "Net.block", "Tensor.matmul", "output", besides="Tensor.bfloat16",
    ),
    "a constant of the first step": Fault(
        "scale = 1.0 + 0.1 * step", "scale = 1.0", "loss", "",
        "", "Tensor.mul", "output", "net(x, mask) * scale", "1.1 in the original, 1.0 here",
    ),
    "statistics that do not move": Fault(
        "self.norm = nn.BatchNorm1d(size)", "self.norm = nn.BatchNorm1d(size, momentum=0.0)",
        "buffers", "block.norm.running_mean", "Net.block.norm",
        "torch.nn.functional.batch_norm", "buffer", "self.drop(self.norm(", "0.1 in the original",
    ),
}  # fmt: skip
# verify is the same on both targets
FIRST = ["a dropped gradient"] if TARGET == "torchax" else []
TWO = ["a dropped gradient", "statistics that do not move"]
PLANTED = FAULTS if TARGET == "torchax" else TWO


@pytest.mark.usefixtures("_originals")
@pytest.mark.parametrize("name", thorough_but(FIRST, PLANTED))
def test_a_planted_fault_is_found_where_it_shows_first_and_where_it_is(
    verify: Callable[..., ScriptResult], name: str
) -> None:
    fault = FAULTS[name]
    result = verify((fault.old, fault.new), bisect=True)
    assert result.error is None and not result.passed, result
    first = result.stepwise.first
    assert first is not None
    assert first.kind == fault.kind, first
    assert fault.place in f"{first.name}.{first.place}"
    found = result.bisection
    assert found is not None and found.original is not None and found.migrated is not None, found
    assert (found.module, found.what) == (fault.module, fault.what), found
    operations = {found.original.operation, found.migrated.operation} - {""}
    # torch_xla's runtime has products of its own, and makes a batch_norm of other operations
    assert fault.operation in operations, found
    assert {o.rpartition(".")[2] for o in operations} == {fault.operation.rpartition(".")[2]}
    assert (fault.text or fault.new) in found.migrated.text
    assert (fault.text or fault.old) in found.original.text
    if found.migrated.operation:
        assert any(fault.besides in line for line in found.differences), found
    if fault.what == "buffer":
        assert found.name == "Net.block.norm.running_mean"
        assert fault.old == found.original.made_text and fault.new == found.migrated.made_text
    assert found.agreed > 3
    json.dumps(result.to_dict())
