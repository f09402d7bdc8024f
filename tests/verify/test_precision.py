"""Products below the highest precision are found in the text of dumped programs."""

from pathlib import Path

import pytest

from migrator.targets import find_target
from migrator.verify.product_precision import PrecisionReport, check, collect

JAX_TARGET, XLA_TARGET = find_target("torchax"), find_target("torch_xla")

# Lines as jax 0.10.2 and torch_xla 2.9.0 dump them.
DOT = (
    "%0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], "
    "precision = [{0}, {0}] : (tensor<64x64x{1}>, tensor<64x64x{1}>) -> tensor<64x64x{1}> loc(#l)"
)
CONVOLUTION = (
    "%0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, "
    "1], window = {{stride = [1, 1]}} {{batch_group_count = 1 : i64, feature_group_count = 3 : i64,"
    " precision_config = [#stablehlo<precision {0}>, #stablehlo<precision {0}>]}} : "
    "(tensor<1x3x64x64xf32>, tensor<3x1x7x7xf32>) -> tensor<1x3x58x58xf32> loc(#loc9)"
)
HLO = """\
  %add.58 = {0}[64,64]{{1,0}} add(%broadcast.15, %multiply.57)
  ROOT %dot.59 = f32[64,64]{{1,0}} dot(%add.58, %add.58), lhs_contracting_dims={{1}}{1}
"""
PRECISION = ", operand_precision={highest,highest}"


def stablehlo(folder: Path, *lines: str) -> PrecisionReport:
    text = "\n".join(lines)
    (folder / "jax_ir0005_jit_matmul_compile.mlir").write_text(text, encoding="utf-8")
    return check(folder)


def hlo(folder: Path, text: str) -> PrecisionReport:
    (folder / "module_0000.SyncTensorsGraph.9.before_optimizations.txt").write_text(text)
    return check(folder)


def test_products_at_highest_pass(tmp_path: Path) -> None:
    report = stablehlo(tmp_path, DOT.format("HIGHEST", "f32"), CONVOLUTION.format("HIGHEST"))
    assert (report.count_dots, report.count_convs, report.offenders) == (1, 1, [])
    assert report.passed
    assert report.lines() == [
        "precision: 1 product of float32 matrices and 1 convolution in 1 program: all at HIGHEST"
    ]


@pytest.mark.parametrize("line", [DOT.format("DEFAULT", "f32"), CONVOLUTION.format("HIGH")])
def test_a_product_below_highest_is_an_offender(tmp_path: Path, line: str) -> None:
    report = stablehlo(tmp_path, line, DOT.format("HIGHEST", "f32"))
    assert not report.passed and len(report.offenders) == 1
    assert "jax_ir0005_jit_matmul_compile.mlir" in report.offenders[0]


def test_one_operand_below_highest_is_enough(tmp_path: Path) -> None:
    line = DOT.format("HIGHEST", "f32").replace("HIGHEST, HIGHEST", "HIGHEST, DEFAULT")
    assert not stablehlo(tmp_path, line).passed


def test_a_product_without_any_precision_is_an_offender(tmp_path: Path) -> None:
    line = DOT.format("HIGHEST", "f32").replace(", precision = [HIGHEST, HIGHEST]", "")
    assert not stablehlo(tmp_path, line).passed


def test_complex_products_are_float32_ones(tmp_path: Path) -> None:
    assert not stablehlo(tmp_path, DOT.format("DEFAULT", "complex<f32>")).passed


def test_other_dtypes_are_not_asserted(tmp_path: Path) -> None:
    report = stablehlo(tmp_path, DOT.format("DEFAULT", "bf16"), DOT.format("DEFAULT", "i32"))
    assert (report.count_dots, report.offenders) == (0, [])
    assert report.lines() == [
        "precision: 0 products of float32 matrices and 0 convolutions in 1 program"
    ]


def test_a_line_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    assert not stablehlo(tmp_path, "%0 = stablehlo.dot_general something new").passed


def test_no_programs_is_no_pass(tmp_path: Path) -> None:
    report = check(tmp_path)
    assert not report.passed
    assert "not checked" in report.lines()[0]


def test_hlo_of_torch_xla(tmp_path: Path) -> None:
    assert hlo(tmp_path, HLO.format("f32", PRECISION)).passed
    report = hlo(tmp_path, HLO.format("f32", ""))
    assert report.offenders == [
        "dot to f32[64,64] in module_0000.SyncTensorsGraph.9.before_optimizations.txt"
    ]


def test_hlo_products_are_judged_by_their_operands(tmp_path: Path) -> None:
    report = hlo(tmp_path, HLO.format("bf16", ""))
    assert report.passed and report.count_dots == 0


def test_settings_for_a_run(tmp_path: Path) -> None:
    env = collect({"XLA_FLAGS": "--a=1"}, tmp_path / "d", XLA_TARGET)
    assert env["XLA_FLAGS"].startswith("--a=1 --xla_dump_to=")
    assert collect({"A": "1"}, tmp_path / "d", JAX_TARGET)["JAX_DUMP_IR_TO"] == str(tmp_path / "d")
