"""Weights after steps of an optimizer; needs numpy, so it runs where a target's packages are."""

import sys
from pathlib import Path
from typing import Any

from migrator.verify.divergence import compare
from migrator.verify.findings import Comparison
from migrator.verify.recordings import Recording
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
