"""Tensors of two runs against each other, with the target's NumPy."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from migrator.verify.comparisons import Finding
from migrator.verify.divergence import compare
from migrator.verify.recordings import Recording
from migrator.verify.tolerances import Tolerances

from .support import Tensor, safetensors

INF, NAN = float("inf"), float("nan")


def held(
    folder: Path,
    golden: Tensor,
    run: Tensor,
    rounded: Tensor | None = None,
    kind: str = "output",
    start: Tensor | None = None,
    **how: Any,
) -> Finding:
    def recording(name: str, tensor: Tensor) -> Recording:
        there = {"x": tensor, **({"s": start} if start else {})}
        (folder / name).write_bytes(safetensors(there))
        events = [{"kind": kind, "name": "Net", "step": 0, "line": "", "tensors": {"0": "x"}}]
        if start:
            before = {"kind": "start", "name": "Net", "step": 0, "line": "", "tensors": {"0": "s"}}
            events.insert(0, before)
        return Recording(folder, events, [], "", "", 1, 1.0, {}, {}, tensors=name)

    again = [recording("rounded", rounded)] if rounded else []
    both = recording("golden", golden), recording("run", run)
    found = compare(both[0], again, both[1], Path(sys.executable), folder, **how)
    return next(f for f in found.findings if f.kind == kind)


def f32(*values: float) -> Tensor:
    return ("F32", [len(values)], values)


def test_what_agrees_and_what_does_not(tmp_path: Path) -> None:
    assert held(tmp_path, f32(1, 2), f32(1, 2)).ratio == 0
    found = held(tmp_path, f32(1, 2), f32(1, 2.0000002))
    assert found.passed and 0 < found.ratio < 0.05 and found.max_ulp == pytest.approx(1, rel=0.2)
    found = held(tmp_path, f32(1, 2), f32(1, 2.1))
    assert found.reason == "1 of 2 elements beyond the tolerance" and found.want == 2
    assert found.max_abs == pytest.approx(0.1) and found.ratio > 1000


def test_which_element_rounding_moves_is_chance_how_many_is_not(tmp_path: Path) -> None:
    golden, rounded = f32(1, 1, 1, 1), f32(1, 1, 1, 1.01)
    assert held(tmp_path, golden, f32(1, 1.07, 1, 1), rounded).passed
    assert not held(tmp_path, golden, f32(1, 1.09, 1, 1), rounded).passed
    found = held(tmp_path, golden, f32(1.07, 0.93, 1.07, 1), rounded)
    assert found.reason == "off by 0.0606 on average (root mean square), allowed 0.04"


def test_rounding_makes_a_few_decisions_otherwise(tmp_path: Path) -> None:
    """A class whose score is almost another's: as many pixels as in other roundings, and few."""

    def passes(differ: int, moved: int, kind: str = "output", size: int = 1000) -> bool:
        golden, run, rounded = (
            ("I64", [size], [1] * number + [0] * (size - number)) for number in (0, differ, moved)
        )
        return held(tmp_path, golden, run, rounded, kind).passed

    assert passes(8, 1) and not passes(9, 1) and not passes(1, 0)
    assert passes(20, 100) and not passes(21, 100)  # where all depends on chance, nothing is shown
    assert not passes(1, 1, kind="input")
    assert passes(1, 0, size=4096) and not passes(2, 0, size=4096)  # one of many may be on edge


def test_a_few_weights_may_be_off_by_a_step_and_no_outputs(tmp_path: Path) -> None:
    golden = f32(*[1.0] * 400)

    def off(number: int, by: float, kind: str) -> bool:
        return held(
            tmp_path, golden, f32(*[1.0 + by] * number, *[1.0] * (400 - number)), kind=kind
        ).passed

    assert off(2, 0.5, "end") and off(2, 0.5, "weights")
    assert not off(3, 0.5, "end") and not off(2, 1.5, "end") and not off(2, 0.5, "output")


def test_one_weight_of_some_may_step_to_the_other_side(tmp_path: Path) -> None:
    """Adam's first step has the sign of a gradient: a bias that was 0 may be one step off 0."""
    start = f32(*[0.5] * 32)
    golden = f32(*[0.501] * 32)

    def passes(number: int, other: float, start: Tensor | None = start) -> bool:
        run = f32(*[other] * number, *[0.501] * (32 - number))
        return held(tmp_path, golden, run, kind="end", start=start).passed

    assert passes(1, 0.499) and not passes(2, 0.499)
    assert not passes(1, 0.498) and passes(1, 0.498, start=None)
    run = f32(0.499, *[0.501] * 31)
    found = held(tmp_path, golden, run, kind="end", start=f32(*[0.5] * 32), kinds=["end"])
    assert found.passed  # also where the first state itself is not compared


def test_weights_move_as_far_as_in_the_golden(tmp_path: Path) -> None:
    """Steps of another size hide behind what single elements may be off, not in the mean of all."""
    size, rate = 1000, 0.001

    def weights(rate: float, *flipped: int) -> Tensor:
        return f32(*(0.5 + rate * (-1) ** (i + (i in flipped)) for i in range(size)))

    def run(weights_: Tensor, rounded: Tensor | None, tf32: bool = True) -> Finding:
        start, tolerances = f32(*[0.5] * size), Tolerances(tf32=tf32)
        return held(
            tmp_path, weights(rate), weights_, rounded, kind="weights", start=start,
            tolerances=tolerances,
        )  # fmt: skip

    one, tenth = weights(rate, 7), weights(rate, *range(0, size, 10))
    half = weights(rate, *range(0, size, 2))
    assert run(weights(rate, 8), one).passed and run(weights(rate * 1.04), one).passed
    found = run(weights(rate * 1.1), one)
    assert found.reason == (
        "moved by 0.0011 since the start (root mean square), in the golden by 0.001, "
        "allowed ± 5.21e-05"
    )
    assert run(weights(rate * 1.1), tenth).passed and not run(weights(rate * 1.3), tenth).passed
    assert not run(weights(rate * 0.9), one, tf32=False).passed
    # where rounding decides which way a weight moves, or it isn't known, its size says nothing
    assert run(weights(rate * 1.1), half).passed and run(weights(rate * 1.1), None).passed


def test_a_copy_of_trained_weights_is_held_as_these_are(tmp_path: Path) -> None:
    def first_copy(step: int) -> Finding:
        runs = []
        for name, value in (("g", 0.001), ("x", -0.001)):
            tensors = {"s": f32(*[0] * 32), "w": f32(value, *[0.001] * 31)}
            (tmp_path / name).write_bytes(safetensors(tensors))
            start = {"kind": "start", "name": "Net", "step": 0, "line": "", "tensors": {"a.w": "s"}}
            copy = {**start, "name": "Copy", "step": step, "tensors": {"w": "w"}}
            runs.append(
                Recording(tmp_path, [start, copy], [], "", "", 1, 1.0, {}, {}, tensors=name)
            )
        found = compare(runs[0], [], runs[1], Path(sys.executable), tmp_path)
        return next(f for f in found.findings if f.name == "Copy")

    assert first_copy(1).passed and not first_copy(0).passed


def test_what_a_weight_may_be_off_follows_what_its_gradient_may(tmp_path: Path) -> None:
    """By 1e-4, ten units of its norm; an optimizer made 1e-6 of 1e-6, or much more of it."""

    def passes(gradient: float, weight: float, by: float) -> bool:
        runs = []
        for name, norm, value in (
            ("g", 1.0, 1.0),
            ("r", 1 + gradient, 1 + weight),
            ("x", 1.0, 1 + by),
        ):
            (tmp_path / name).write_bytes(safetensors({"w": f32(value)}))
            step = {"kind": "gradients", "name": "SGD", "step": 0, "line": "",
                    "norms": {"Net.w": norm}, "dtypes": {}}  # fmt: skip
            after = {"kind": "weights", "name": "Net", "step": 1, "line": "", "tensors": {"w": "w"}}
            events = [step, after]
            runs.append(Recording(tmp_path, events, [], "", "", 1, 1.0, {}, {}, tensors=name))
        found = compare(runs[0], [runs[1]], runs[2], Path(sys.executable), tmp_path)
        return next(f for f in found.findings if f.kind == "weights").passed

    assert passes(1e-6, 1e-6, 1e-4) and not passes(1e-6, 1e-6, 2e-4)
    assert passes(1e-6, 1e-4, 9e-3) and not passes(1e-4, 1e-6, 1e-4)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_nan_and_inf_never_pass(tmp_path: Path, value: float) -> None:
    for golden, run in ((value, 1.0), (1.0, value), (value, value)):
        found = held(tmp_path, f32(0, golden), f32(0, run))
        assert found.reason is not None and "NaN or Inf" in found.reason
    assert not held(tmp_path, f32(0, 1), f32(0, value), f32(0, value)).passed


def test_inf_of_the_programs_own_masks_is_compared_as_it_is(tmp_path: Path) -> None:
    mask = f32(0, -INF)
    for kind in ("input", "start"):
        assert held(tmp_path, mask, mask, kind=kind).passed
        assert not held(tmp_path, mask, f32(0, INF), kind=kind).passed
        assert not held(tmp_path, mask, f32(0.1, -INF), kind=kind).passed
        assert not held(tmp_path, f32(0, NAN), f32(0, NAN), kind=kind).passed
    assert held(tmp_path, mask, mask, kind="end", start=mask).passed
    assert not held(tmp_path, mask, mask, kind="end", start=f32(0, 1)).passed
    assert not held(tmp_path, mask, mask, kind="output").passed


@pytest.mark.parametrize(("golden", "run", "reason"), [
    (("I64", [2], [1, 2]), ("I32", [2], [1, 2]), None),  # 64-bit types of JAX are off
    (("I64", [2], [1, 2]), ("I32", [2], [1, 3]), "1 of 2 values differ"),
    (("BOOL", [2], [0, 1]), ("I32", [2], [0, 1]), "dtype int32, golden bool"),
    (("U8", [2], [0, 1]), ("I32", [2], [0, 1]), "dtype int32, golden uint8"),
    (("F64", [1], [1.0]), ("F32", [1], [1.0]), None),
    (("F32", [1], [1.0]), ("BF16", [1], [0x3F80]), "dtype bfloat16, golden float32"),
    (("F32", [1], [1.0]), ("I32", [1], [1]), "dtype int32, golden float32"),
    (("F32", [2, 1], [1, 2]), ("F32", [1, 2], [1, 2]), "shape [1, 2], golden [2, 1]"),
    (("BF16", [2], [0x3F80, 0x4000]), ("BF16", [2], [0x3F81, 0x4000]), None),
    (("BF16", [2], [0x3F80, 0x4000]), ("BF16", [2], [0x3FA0, 0x4000]),
     "1 of 2 elements beyond the tolerance"),
])  # fmt: skip
def test_dtypes_and_shapes(tmp_path: Path, golden: Tensor, run: Tensor, reason: str | None) -> None:
    assert held(tmp_path, golden, run).reason == reason


def test_tolerances_are_multiplied(tmp_path: Path) -> None:
    golden, run = f32(1, 2), f32(1, 2.00005)

    def passes(*factors: str) -> bool:
        return held(tmp_path, golden, run, tolerances=Tolerances.parse(factors)).passed

    given: Sequence[Sequence[str]] = ((), ("4",), ("output=4",), ("input=4",), ("4", "output=1"))
    assert [passes(*factors) for factors in given] == [False, True, True, False, False]


def test_a_mean_that_batchnorm_keeps_is_held_against_the_deviation(tmp_path: Path) -> None:
    """Behind another BatchNorm it is nothing but rounding."""

    def passes(mean: float, variance: str = "bn.running_var") -> bool:
        recordings = []
        for name, value in (("golden", 1e-9), ("run", mean)):
            there = {"1.end.Net.bn.running_mean": f32(value), f"1.end.Net.{variance}": f32(0.25)}
            (tmp_path / name).write_bytes(safetensors(there))
            tensors = {key.removeprefix("1.end.Net."): key for key in there}
            event = {"kind": "end", "name": "Net", "step": 0, "line": "", "tensors": tensors}
            recordings.append(
                Recording(tmp_path, [event], [], "", "", 1, 1.0, {}, {}, tensors=name)
            )
        found = compare(recordings[0], [], recordings[1], Path(sys.executable), tmp_path)
        return all(f.passed for f in found.findings)

    assert passes(-1e-9) and not passes(1e-3)
    assert not passes(-1e-9, variance="var")
