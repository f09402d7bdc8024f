"""What a device draws by itself, which other runs of a verification draw on the CPU."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers import COPY
from tiers import thorough_on

from migrator import migrate_paths
from migrator.verify.own_draws import note_on_losses
from migrator.verify.recordings import RecordSettings
from migrator.verify.run_options import RunOptions
from migrator.verify.script_result import ScriptResult
from migrator.verify.script_verification import verify_against

from .small_scripts import ON_TARGET

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(16, 6).cuda()
    uniform = torch.rand(16, 4, device="cuda")
    noise = -torch.log(-torch.log(uniform))
    optimizer.zero_grad()
    loss = torch.softmax(model(x) + noise, -1)[:, 0].mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
# What the recorder replaces is right; what the device would draw is not.
DRAWN = "(torch.rand if hasattr(torch.rand, '__wrapped__') else {})("


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptResult]:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT, encoding="utf-8")

    def run(instead: str = "torch.rand", settings: RecordSettings | None = None) -> ScriptResult:
        migrate = partial(_with_draws, instead)
        options = RunOptions(python=Path(sys.executable), migrate=migrate)
        settings = settings or RecordSettings(roundings=1)
        return verify_against(Path("train.py"), [], ON_TARGET, None, settings, options)

    return run


def _with_draws(instead: str, source: Path, target: str, to: Path) -> list[str]:
    report = migrate_paths([source], target=target, config=COPY, output=to)
    text = (to / "train.py").read_text(encoding="utf-8")
    assert "torch.rand(" in text
    text = text.replace("torch.rand(", DRAWN.format(instead))
    (to / "train.py").write_text(text, encoding="utf-8")
    return report.errors


@pytest.mark.thorough
def test_right_draws_pass_without_a_note(verify: Callable[..., ScriptResult]) -> None:
    result = verify()
    assert result.passed, (result.error, result.problems, result.log_tail)
    assert not any("own random numbers" in note for note in result.notes), result.notes


@thorough_on("torch_xla")
def test_a_draw_that_gives_nan_fails(verify: Callable[..., ScriptResult]) -> None:
    result = verify("torch.ones", RecordSettings(roundings=1, quick=True))  # torch never draws a 1
    assert not result.passed
    [problem] = result.problems
    assert problem.startswith("NaN or Inf with the device's own random numbers, first in ")


@pytest.mark.thorough
def test_a_loss_that_no_seed_gives_is_a_note(verify: Callable[..., ScriptResult]) -> None:
    result = verify("(lambda *size, device: torch.linspace(0.999, 0.1, 4).to(device).expand(size))")
    assert result.passed, (result.error, result.problems)
    [note] = [note for note in result.notes if "own random numbers" in note]
    assert "with 3 seeds the original's is" in note


def test_a_loss_is_judged_by_how_far_seeds_are_apart() -> None:
    seeds = [[1.0, 0.8], [1.1, 0.9], [1.05, 0.85]]
    assert not note_on_losses([1.2, 0.9], seeds)
    assert "is 2, with 3 seeds the original's is 0.9 to 1" in note_on_losses([2.0, 2.0], seeds)
    assert not note_on_losses([], seeds)
    assert not note_on_losses([2.0], [])


def test_means_that_are_close_by_chance_are_no_bound() -> None:
    seeds = [[0.1, 0.3, 0.2, 0.28], [0.3, 0.12, 0.26, 0.2], [0.22, 0.24, 0.14, 0.28]]
    assert not note_on_losses([0.3, 0.26, 0.27, 0.25], seeds)
    assert note_on_losses([0.5, 0.5, 0.5, 0.5], seeds)


def test_one_step_far_off_is_no_note() -> None:
    """Losses of flow matching: a quotient by 1 - time, which was close to 0 in the last step."""
    seeds = [
        [0.874, 1.295, 1.241, 0.812, 0.618, 1.053],
        [2.945, 0.751, 0.79, 0.581, 0.716, 0.66],
        [0.73, 0.74, 2.588, 0.787, 0.622, 0.77],
    ]
    assert not note_on_losses([1.021, 2.135, 0.903, 0.724, 0.62, 8.513], seeds)
    assert note_on_losses([4.1, 4.6, 3.9, 3.7, 3.6, 8.5], seeds)
