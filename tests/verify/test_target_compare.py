"""The comparison itself; needs numpy, so it runs where a target's packages are."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from migrator.verify.safetensors_files import Damaged, Difference, compare_outputs

from .support import Tensor, safetensors

EXACT = {"atol": 0.0, "rtol": 0.0, "max_mismatch": 0.0, "nonfinite": False, "any_width": False}
INF, NAN = math.inf, math.nan


def rows(
    folder: Path, want: dict[str, Tensor], got: dict[str, Tensor], **tolerance: object
) -> list[Difference]:
    (folder / "want").write_bytes(safetensors(want))
    (folder / "got").write_bytes(safetensors(got))
    tolerances = {name: {**EXACT, **tolerance} for name in want}
    return held(folder / "want", folder / "got", tolerances)


def held(want: Path, got: Path, tolerances: dict[str, Any]) -> list[Difference]:
    found = compare_outputs(want, got, tolerances, Path(sys.executable), want.parent)
    return [Difference(**fields) for fields in found.values()]


def row(
    folder: Path, dtype: str, want: list[Any], got: list[Any], **tolerance: object
) -> Difference:
    shape = [len(want)]
    (found,) = rows(folder, {"y": (dtype, shape, want)}, {"y": (dtype, shape, got)}, **tolerance)
    return found


def test_equal_outputs_pass_exactly(tmp_path: Path) -> None:
    found = row(tmp_path, "F32", [1.0, -2.0, 0.0], [1.0, -2.0, -0.0])
    assert found.passed
    assert (found.max_abs, found.mean_abs, found.max_ulp) == (0, 0, 0)


def test_differences_are_measured(tmp_path: Path) -> None:
    found = row(tmp_path, "F32", [1.0, 2.0], [1.0 + 2**-22, 2.0], atol=1e-6)
    assert found.passed
    assert found.max_abs == 2**-22
    assert found.mean_abs == 2**-23
    assert found.max_ulp == 2
    assert not row(tmp_path, "F32", [1.0, 2.0], [1.0 + 2**-22, 2.0], atol=1e-7).passed


def test_relative_tolerance_and_mismatch_fraction(tmp_path: Path) -> None:
    assert row(tmp_path, "F64", [100.0], [100.1], rtol=1e-2).passed
    half = row(tmp_path, "F64", [1.0, 1.0], [1.0, 9.0], max_mismatch=0.5)
    assert half.passed and half.mismatch == 0.5
    less = row(tmp_path, "F64", [1.0, 1.0], [1.0, 9.0], max_mismatch=0.4)
    assert less.reason == "1 of 2 elements beyond the tolerance"


@pytest.mark.parametrize("odd", [NAN, INF, -INF])
def test_nan_and_inf_never_pass_undeclared(tmp_path: Path, odd: float) -> None:
    for want, got, where in (
        ([odd], [odd], "both have"),
        ([1.0], [odd], "only here"),
        ([odd], [1.0], "only in the golden"),
    ):
        found = row(tmp_path, "F32", want, got, atol=1e9, max_mismatch=0.99)
        assert found.reason == f"1 NaN or Inf, {where}"


def test_declared_nan_and_inf_pass_at_the_same_place_only(tmp_path: Path) -> None:
    same = [1.0, NAN, INF]
    found = row(tmp_path, "F32", same, same, nonfinite=True)
    assert found.passed and found.max_abs == 0
    for got in ([NAN, 1.0, INF], [1.0, NAN, -INF], [1.0, NAN, NAN]):
        assert not row(tmp_path, "F32", same, got, nonfinite=True, atol=1e9).passed


def test_ulp_says_nothing_across_signs_and_below_atol(tmp_path: Path) -> None:
    assert row(tmp_path, "F32", [1e-9, -1e-9], [-1e-9, 1e-9], atol=1e-6).max_ulp is None
    assert row(tmp_path, "F32", [1e-9], [2e-9], atol=1e-6).max_ulp is None
    assert row(tmp_path, "I32", [1], [2]).max_ulp is None
    assert row(tmp_path, "F64", [-1.0], [-1.0 - 2**-52], atol=1e-9).max_ulp == 1


def test_bfloat16(tmp_path: Path) -> None:
    found = row(tmp_path, "BF16", [0x3F80], [0x3F81], atol=0.01)  # 1 and its neighbour
    assert (found.max_abs, found.max_ulp) == (2**-7, 1)
    assert found.passed and found.dtype == "bfloat16"
    odd = row(tmp_path, "BF16", [0x3F80], [0x7FC0])
    assert odd.reason == "1 NaN or Inf, only here"


def test_integers_do_not_wrap_around(tmp_path: Path) -> None:
    assert row(tmp_path, "U8", [0, 255], [255, 0]).max_abs == 255
    lowest, highest = -(2**63), 2**63 - 1
    assert row(tmp_path, "I64", [lowest], [highest]).max_abs == 2.0**64
    assert not row(tmp_path, "BOOL", [True], [False]).passed


@pytest.mark.parametrize(
    ("got", "reason"),
    [
        ({}, "missing: the script did not write it"),
        ({"y": ("F32", [1, 2], [1.0, 2.0])}, "shape [1, 2], golden [2]"),
        ({"y": ("F64", [2], [1.0, 2.0])}, "dtype float64, golden float32"),
    ],
)
def test_missing_and_misshapen_outputs_fail(
    tmp_path: Path, got: dict[str, Tensor], reason: str
) -> None:
    (found,) = rows(tmp_path, {"y": ("F32", [2], [1.0, 2.0])}, got)
    assert not found.passed and found.reason == reason


def test_an_extra_output_fails(tmp_path: Path) -> None:
    y: Tensor = ("F32", [1], [1.0])
    first, second = rows(tmp_path, {"y": y}, {"y": y, "z": y})
    assert first.passed
    assert second.reason == "extra: the golden has no such output"


def test_an_output_without_a_tolerance_fails(tmp_path: Path) -> None:
    data = safetensors({"y": ("F32", [1], [1.0])})
    (tmp_path / "a").write_bytes(data)
    (found,) = held(tmp_path / "a", tmp_path / "a", {})
    assert found.reason == "no tolerance is stated for it in app.toml"


def test_an_empty_output_has_no_numbers(tmp_path: Path) -> None:
    found = row(tmp_path, "F32", [], [])
    assert (found.elements, found.max_abs) == (0, None)


def test_a_file_cut_short_is_damaged(tmp_path: Path) -> None:
    data = safetensors({"y": ("F32", [2], [1.0, 2.0])})
    (tmp_path / "want").write_bytes(data)
    for size in (0, 7, 30, len(data) - 1):
        (tmp_path / "got").write_bytes(data[:size])
        with pytest.raises(Damaged):
            held(tmp_path / "want", tmp_path / "got", {"y": EXACT})


def test_files_of_the_safetensors_library_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    tensors = {
        str(dtype): torch.arange(6).reshape(2, 3).to(dtype)
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.bool)
    }
    library.save_file(tensors, tmp_path / "x", metadata={"format": "pt"})
    found = held(tmp_path / "x", tmp_path / "x", dict.fromkeys(tensors, EXACT))
    assert len(found) == 5
    assert all(each.passed and each.shape == [2, 3] for each in found)
