"""Weights after steps of an optimizer; needs numpy, so it runs where a target's packages are."""

import sys
from pathlib import Path
from typing import Any

from migrator.verify.comparisons import Comparison
from migrator.verify.divergence import compare
from migrator.verify.recordings import Recording
from migrator.verify.script_notes import note_on_free
from migrator.verify.tolerances import Tolerances

from .support import safetensors

START = [0.01] * 8
MOVED = [0.011, 0.009] * 4  # by a step of Adam: each element up or down, equally far


def trained(folder: Path, after: list[list[float]], norm: float) -> Recording:
    """A run of a bias whose gradient is a hundredth of the norm of all."""
    states = [START, *after]
    folder.mkdir(parents=True)
    tensors = {f"w{n}": ("F32", [8], w) for n, w in enumerate(states)}
    (folder / "t").write_bytes(safetensors(tensors))
    events: list[dict[str, Any]] = []
    for step in range(len(states)):
        if step:
            norms = {"Net.bias": norm, "Net.weight": 10.0}
            events.append({"kind": "gradients", "name": "Adam", "step": step - 1, "norms": norms})
        kind = "weights" if step else "start"
        state = {"bias": f"w{step}"}
        events.append({"kind": kind, "name": "Net", "step": step, "tensors": state})
    for event in events:
        event["line"] = "t.py:1"
    return Recording(folder, events, [], "", "", len(after), 1.0, {}, {}, tensors="t")


def held(folder: Path, got: list[list[float]], want: list[list[float]], tf32: bool) -> Comparison:
    golden = trained(folder / "golden", want, 0.1)
    again = trained(folder / "rounding", want, 0.1001)  # turned no element
    run = trained(folder / "run", got, 0.1)
    python = Path(sys.executable)
    return compare(golden, [again], run, python, folder, tolerances=Tolerances(tf32=tf32))


def turned(*places: int) -> list[float]:
    return [0.02 - w if n in places else w for n, w in enumerate(MOVED)]


def test_in_tf32_one_element_of_a_small_bias_may_be_turned(tmp_path: Path) -> None:
    """TF32 moves its gradient by more than rounding in float32 does."""
    assert held(tmp_path / "tf32", [turned(3)], [MOVED], tf32=True).first is None
    found = held(tmp_path / "float32", [turned(3)], [MOVED], tf32=False).first
    assert found is not None and found.reason == "1 of 8 elements beyond the tolerance"
    assert held(tmp_path / "three", [turned(3, 4, 5)], [MOVED], tf32=True).first is not None


def test_in_tf32_a_turned_element_may_have_come_back(tmp_path: Path) -> None:
    twice = [2 * w - 0.01 for w in MOVED]
    back = [0.01 if n == 3 else w for n, w in enumerate(twice)]
    assert held(tmp_path / "one", [turned(3), back], [MOVED, twice], tf32=True).first is None


def test_in_tf32_a_learning_rate_that_is_ten_percent_off_is_found(tmp_path: Path) -> None:
    more = [0.01 + 1.1 * (w - 0.01) for w in MOVED]
    found = held(tmp_path / "more", [more], [MOVED], tf32=True).first
    assert found is not None and found.place == "bias"


def noisy(folder: Path, biases: list[float], norm: float, size: int = 1) -> Recording:
    """A run of a bias before BatchNorm, of one channel, and the mean of ``size`` channels."""
    folder.mkdir(parents=True)
    tensors = {f"b{n}": ("F32", [1], [value]) for n, value in enumerate(biases)}
    tensors |= {f"m{n}": ("F32", [size], [value] * size) for n, value in enumerate(biases)}
    (folder / "t").write_bytes(safetensors(tensors))
    about = {"line": "t.py:1"}
    events: list[dict[str, Any]] = []
    for step in range(len(biases)):
        if step:
            norms = {"Net.bias": norm, "Net.weight": 10.0}
            found = {"kind": "gradients", "name": "Adam", "step": step - 1, "norms": norms}
            events.append(found | about)
        state = {"bias": f"b{step}", "norm.running_mean": f"m{step}"}
        kind = "weights" if step else "start"
        events.append({"kind": kind, "name": "Net", "step": step, "tensors": state} | about)
    return Recording(folder, events, [], "", "", len(biases) - 1, 1.0, {}, {}, tensors="t")


def held_noise(folder: Path, got: list[float], norm: float, size: int = 1) -> Comparison:
    """Against a golden whose second step leads back, in a rounding run, too."""
    golden = noisy(folder / "golden", [0.1, 0.11, 0.1], norm, size)
    again = noisy(folder / "rounding", [0.1, 0.11, 0.1], 1.5 * norm, size)
    run = noisy(folder / "run", got, norm, size)
    return compare(golden, [again], run, Path(sys.executable), folder)


def test_steps_of_nothing_but_rounding_need_not_lead_back(tmp_path: Path) -> None:
    """Of one element, rounding runs may all have turned as the golden did, by chance."""
    found = held_noise(tmp_path / "noise", [0.1, 0.09, 0.08], norm=1e-8)
    assert found.first is None
    free = [(f.place, f.step) for f in found.findings if f.free]
    assert ("bias", 2) in free and ("norm.running_mean", 2) in free
    assert "Net.norm.running_mean" in note_on_free(found) or "Net.bias" in note_on_free(found)


def test_a_weight_with_a_gradient_must_go_the_same_way(tmp_path: Path) -> None:
    found = held_noise(tmp_path / "trained", [0.1, 0.09, 0.08], norm=0.1)
    assert found.first is not None and not note_on_free(found)


def test_steps_of_rounding_are_as_long_as_others(tmp_path: Path) -> None:
    found = held_noise(tmp_path / "far", [0.1, 0.09, 0.02], norm=1e-8)
    assert found.first is not None and found.first.place == "bias"


def test_a_mean_of_other_channels_follows_no_bias(tmp_path: Path) -> None:
    found = held_noise(tmp_path / "channels", [0.1, 0.09, 0.08], norm=1e-8, size=2)
    assert found.first is not None and found.first.place == "norm.running_mean"
