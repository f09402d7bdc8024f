"""What steps take on a user's GPU. There is none here: the CPU's steps are measured."""

import json
import sys
from pathlib import Path

import pytest

from migrator.verify import gpu_steps, originals
from migrator.verify.recordings import RecordSettings
from migrator.verify.script import Script
from migrator.verify.verify_errors import VerifyError

pytest.importorskip("torch")

TRAIN = """\
import sys, time
from pathlib import Path
import torch

made = [torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1) for _ in range(2)]
for number in range(int(sys.argv[1])):
    time.sleep(0.2 if number < 3 else 0.01)
    for optimizer in made:
        optimizer.param_groups[0]["params"][0].sum().backward()
        optimizer.step()
    print(number)
    Path("last.txt").write_text(str(number))
"""


def measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> gpu_steps.GpuSteps | None:
    folder.joinpath("train.py").write_text(TRAIN)
    monkeypatch.chdir(folder)
    script = Script.find(Path("train.py"), [str(steps)])
    copy = script.copy(folder / "work" / "measured", folder / "work")
    return gpu_steps.measure(script, Path(sys.executable), copy, folder / "golden", 100, {})


def test_the_median_of_steps_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(tmp_path, monkeypatch, 100)
    assert found is not None and found.steps == gpu_steps.STEPS and found.device == "CPU"
    assert 0.01 < found.seconds < 0.15 and found.memory is None
    assert gpu_steps.read(tmp_path / "golden") == found
    # It ends after what is measured: three steps, one, and twenty after it.
    assert (tmp_path / "work" / "measured" / "last.txt").read_text() == "22"


@pytest.mark.parametrize(("steps", "counted"), [(0, None), (4, None), (6, 2)])
def test_a_short_program_has_few_steps(
    steps: int, counted: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(tmp_path, monkeypatch, steps)
    assert (found and found.steps) == counted


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_recording_on_a_gpu_is_measured(
    on_gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(originals, "is_on_gpu", lambda _: on_gpu)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    golden = tmp_path / "golden"
    settings = RecordSettings(roundings=0)
    _, notes = originals.record_script(
        Path("train.py"), ["8"], golden, Path(sys.executable), settings
    )
    assert (golden / gpu_steps.FILE).is_file() is on_gpu
    assert any("ms a step on CPU (the median of 4" in note for note in notes) is on_gpu


def test_what_was_not_measured_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="`tpu-migrate record` on a GPU writes it"):
        gpu_steps.read(tmp_path)
    (tmp_path / gpu_steps.FILE).write_text(json.dumps({"device": "A100"}))
    with pytest.raises(VerifyError, match="not written by"):
        gpu_steps.read(tmp_path)


def test_memory_is_said() -> None:
    found = gpu_steps.GpuSteps("NVIDIA H200", 0.0851, 20, 3 << 30)
    assert str(found) == (
        "85.1 ms a step, 3.00 GiB allocated on NVIDIA H200 (the median of 20, measured by `record`)"
    )
