"""What is compiled for a TPU that is not there, and what is said of it; the compiler is a fake."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from migrator.targets import find_target
from migrator.verify.choose_interpreter import with_tpu_compiler
from migrator.verify.interpreters import Interpreter
from migrator.verify.product_precision import check
from migrator.verify.table import show
from migrator.verify.tpu import DumpedProgram, TpuReport, compile_programs, judge, programs_of
from migrator.verify.verify_errors import VerifyError
from migrator.verify.verify_result import VerifyResult

from .support import GRAPH

# As jax 0.10.2 dumps them: an operator, and a step, whose outputs take the place of arguments.
HEAD = "#loc{0} = loc(unknown)\nmodule @jit_{1} attributes {{mhlo.num_partitions = 1 : i32}} {{\n"
DONATED = "func.func public @main(%arg0: tensor<8x8xf32> {tf.aliasing_output = 0 : i32}) {\n"
DOT = (
    "%0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], "
    "precision = [{0}, {0}] : (tensor<8x8x{1}>, tensor<8x8x{1}>) -> tensor<8x8x{1}> loc(#loc2)\n"
)
FACTS = {
    "error": None, "below": [], "hbm": 3 * 2**20, "arguments": 2**20, "outputs": 2**20,
    "in_place": 2**20, "temporaries": 2**20, "code": 2**20, "flops": 2e9, "accessed": 5e6,
    "collectives": {}, "seconds": 1.5,
}  # fmt: skip


def dump(folder: Path, number: int, name: str, *body: str) -> None:
    text = HEAD.format(number, name) + "".join(body)
    (folder / f"jax_ir{number:04}_jit_{name}_compile.mlir").write_text(text, encoding="utf-8")


def operator(folder: Path, number: int, precision: str = "HIGHEST", dtype: str = "f32") -> None:
    dump(folder, number, "matmul", DOT.format(precision, dtype))


def step(folder: Path, number: int, products: int = 1, dtype: str = "f32") -> None:
    dump(folder, number, "step", DONATED, products * DOT.format("HIGHEST", dtype))


def compiler(**changes: Any) -> Callable[[list[Path]], dict[str, Any]]:
    """One that says the same of every program."""

    def compile_all(paths: list[Path]) -> dict[str, Any]:
        facts = [{**FACTS, "file": path.name, **changes} for path in paths]
        return {"programs": facts, "error": None}

    return compile_all


def compiled(folder: Path, **changes: Any) -> TpuReport:
    return compile_programs(programs_of(folder), "v6e-8", compiler(**changes))


def names(programs: list[DumpedProgram]) -> list[tuple[str, bool]]:
    return [(program.name, program.is_step) for program in programs]


def test_programs_are_steps_or_have_products_and_each_counts_once(tmp_path: Path) -> None:
    operator(tmp_path, 0)
    operator(tmp_path, 1)  # only its number and places are others
    dump(tmp_path, 2, "add", "stablehlo.add")
    dump(tmp_path, 3, "fill", DONATED)
    assert names(programs_of(tmp_path)) == [("fill", True), ("matmul", False)]


def test_each_program_of_torch_xla_is_a_step(tmp_path: Path) -> None:
    for number in (7, 9):
        name = f"module_{number:04}.SyncTensorsGraph.{number}.before_optimizations.txt"
        (tmp_path / name).write_text(GRAPH.format(number), encoding="utf-8")
    found = programs_of(tmp_path)
    assert names(found) == [("SyncTensorsGraph.7", True), ("SyncTensorsGraph.9", True)]
    assert [len(program.exact) for program in found] == [1, 1]
    assert all(product.is_highest for program in found for product in program.exact)


def test_where_no_environment_has_the_compiler_it_is_said_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    xla, ax = find_target("torch_xla"), find_target("torchax")
    monkeypatch.setattr("migrator.verify.interpreters.find", lambda *_, **__: None)
    with pytest.raises(VerifyError, match="tpu-migrate doctor --target torchax --install"):
        with_tpu_compiler(Interpreter(Path("python"), xla))
    assert with_tpu_compiler(Interpreter(Path("python"), ax)) == Path("python")


def test_further_programs_of_a_step_are_numbered(tmp_path: Path) -> None:
    step(tmp_path, 0, products=2)
    step(tmp_path, 1, products=1)
    assert names(programs_of(tmp_path)) == [("step (2)", True), ("step", True)]


def test_what_the_runtime_wrote_for_a_tpu_takes_the_place_of_the_dump(tmp_path: Path) -> None:
    for_tpu = tmp_path / "for_tpu"
    for_tpu.mkdir()
    dump(for_tpu, 0, "Net", DOT.format("HIGHEST", "f32"), "stablehlo.custom_call @tpu_custom_call")
    dumped = tmp_path / "dumped"
    dumped.mkdir()
    operator(dumped, 0)
    dump(dumped, 1, "Net", 3 * DOT.format("HIGHEST", "f32"))
    step(dumped, 2)
    found = programs_of(dumped, for_tpu)
    assert sorted(names(found)) == [("Net", True), ("matmul", False), ("step", True)]
    (net,) = [program for program in found if program.name == "Net"]
    assert net.path.parent == for_tpu and len(net.products) == 1


def test_what_jax_can_not_lower_for_a_tpu_is_a_problem(tmp_path: Path) -> None:
    text = "// cannot be lowered for a TPU: NotImplementedError: no rule for eig\n"
    (tmp_path / "0000_jit_Net_compile.mlir").write_text(text, encoding="utf-8")
    report = compile_programs(programs_of(tmp_path / "none", tmp_path), "v6e-1", compiler())
    assert report.problems() == [
        "Net does not compile for a TPU v6e: cannot be lowered for a TPU: NotImplementedError: "
        "no rule for eig"
    ]


def test_a_step_is_shown_with_its_figures_and_operators_in_a_line(tmp_path: Path) -> None:
    step(tmp_path, 0)
    operator(tmp_path, 1)
    operator(tmp_path, 2, dtype="bf16")
    report = compiled(tmp_path)
    result = VerifyResult("train", "torchax", device="CPU back end of torchax", tpu=report)
    console = Console(width=160, record=True, file=io.StringIO())
    show(result, console)
    text = console.export_text()
    assert "Compiled for, not run on, a TPU v6e (v6e-8: single-device programs, for one" in text
    (row,) = [line for line in text.splitlines() if line.startswith("│ step")]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:8] == ["step", "3.0", "1.0", "1.0", "1.0", "1.0", "1.0", "2"]
    assert cells[8:] == ["0.005", "0", "1, all HIGHEST"]
    assert "2 other programs with dots or convolutions" in text
    assert "DONE: train on the CPU back end of torchax: it was run and compiled" in text


def test_a_step_that_is_not_there_is_said(tmp_path: Path) -> None:
    operator(tmp_path, 0)
    assert "no compiled step or module" in compiled(tmp_path).lines()[0]


def test_a_product_that_the_tpu_compiler_lowered_is_an_offender(tmp_path: Path) -> None:
    step(tmp_path, 0)
    report = compiled(tmp_path, below=["dot to f32[8,8]"])
    judged = judge(check(tmp_path), report)
    assert judged.offenders == [
        "dot to f32[8,8] in jax_ir0000_jit_step_compile.mlir compiled for a TPU v6e"
    ]
    assert "1 of 1 programs with such products compiled for, not run on, a TPU v6e" in (
        "\n".join(judged.lines())
    )


def test_what_a_program_asks_for_itself_counts_once(tmp_path: Path) -> None:
    operator(tmp_path, 0, precision="DEFAULT")
    report = compiled(tmp_path, below=["dot to f32[8,8]"])
    assert len(judge(check(tmp_path), report).offenders) == 1
    assert "1 of 1 below HIGHEST" in report.lines()[1]


def test_products_of_mixed_programs_are_not_judged_by_their_compiled_text(tmp_path: Path) -> None:
    dump(tmp_path, 0, "f", DOT.format("HIGHEST", "f32"), DOT.format("DEFAULT", "bf16"))
    report = compiled(tmp_path, below=["dot to bf16[8,8]"])
    assert judge(check(tmp_path), report).offenders == []


def test_a_step_that_a_tpu_refuses_is_a_problem_and_an_operator_is_named(tmp_path: Path) -> None:
    step(tmp_path, 0)
    operator(tmp_path, 1)
    report = compiled(tmp_path, error="JaxRuntimeError: Ran out of memory on HBM")
    assert report.problems() == [
        "step does not compile for a TPU v6e: JaxRuntimeError: Ran out of memory on HBM"
    ]
    assert [line.split(" (")[0] for line in report.lines()] == [
        "not compiled: matmul",
        "not compiled: step",
    ]


def test_a_compiler_that_is_not_there_is_a_problem_only_where_it_was_asked_for(
    tmp_path: Path,
) -> None:
    def absent(programs: list[Path]) -> dict[str, object]:
        raise VerifyError("no libtpu")

    operator(tmp_path, 0)
    report = compile_programs(programs_of(tmp_path), "v6e-1", absent)
    assert report.problems() == ["the programs were not compiled for a TPU v6e: no libtpu"]
    judged = judge(check(tmp_path), report)
    assert judged.passed
    assert judged.lines()[-1].strip() == "TPU compiler: no libtpu"


def test_what_the_time_did_not_do_for_is_said(tmp_path: Path) -> None:
    def slow(paths: list[Path]) -> dict[str, Any]:
        return {**compiler()(paths[:1]), "error": "the time budget was spent"}

    operator(tmp_path, 0)
    operator(tmp_path, 1, dtype="bf16")
    step(tmp_path, 2)
    *operators, one = programs_of(tmp_path)
    report = compile_programs([one], "v6e-1", compiler())
    report = report.joined(compile_programs(operators, "v6e-1", slow))
    assert report.problems() == []
    assert report.lines()[-1] == (
        "1 of 3 programs not compiled (0 of them steps): the time budget was spent"
    )


def test_a_step_that_the_time_did_not_do_for_is_a_problem(tmp_path: Path) -> None:
    def slow(paths: list[Path]) -> dict[str, Any]:
        return {"programs": [], "error": "the time budget was spent"}

    step(tmp_path, 0)
    assert compile_programs(programs_of(tmp_path), "v6e-1", slow).problems() == [
        "1 of 1 steps were not compiled for a TPU v6e: the time budget was spent"
    ]


@pytest.mark.parametrize("products", [0, 1])
def test_nothing_to_compile_is_no_problem(tmp_path: Path, products: int) -> None:
    dump(tmp_path, 0, "add", products * "stablehlo.add")
    assert compiled(tmp_path).problems() == []
