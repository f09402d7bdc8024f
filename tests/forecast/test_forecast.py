"""The forecast of a step: from the compiler's text, and from a script."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from target import needs_libtpu

from migrator.forecast.advice import memory_advice
from migrator.forecast.command import forecast_command
from migrator.forecast.hlo import parse
from migrator.forecast.operations import operations
from migrator.forecast.roofline import bounds_of, step_of
from migrator.verify.chips import chips
from migrator.verify.tpu import Compiled

# As libtpu 0.0.52 writes it, shortened: a product in a loop of three, and a copy into the chip.
TEXT = """\
HloModule jit_f, is_scheduled=true

FileNames
1 "/w/train.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%fused (p0: f32[8,100], p1: f32[100,256]) -> f32[8,256] {
  %p1 = f32[100,256]{1,0:T(8,128)S(1)} parameter(1)
  %p0 = f32[8,100]{1,0:T(8,128)} parameter(0)
  ROOT %convolution.1 = f32[8,256]{1,0:T(8,128)} convolution(%p0, %p1), dim_labels=bf_io->bf, \
operand_precision={highest,highest}, metadata={op_name="jit(f)/fc/aten::mm/dot_general" \
stack_frame_id=1}
}

%body (p: (f32[8,100], f32[100,256])) -> (f32[8,100], f32[100,256]) {
  %p = (f32[8,100]{1,0:T(8,128)}, f32[100,256]{1,0:T(8,128)S(1)}) parameter(0)
  %a = f32[8,100]{1,0:T(8,128)} get-tuple-element(%p), index=0
  %b = f32[100,256]{1,0:T(8,128)S(1)} get-tuple-element(%p), index=1
  %fusion.1 = f32[8,256]{1,0:T(8,128)} fusion(%a, %b), kind=kOutput, calls=%fused
  ROOT %t = (f32[8,100]{1,0:T(8,128)}, f32[100,256]{1,0:T(8,128)S(1)}) tuple(%a, %b)
}

ENTRY %main (x: f32[8,100], w: f32[100,256]) -> f32[8,100] {
  %x = f32[8,100]{1,0:T(8,128)} parameter(0)
  %w = f32[100,256]{1,0:T(8,128)} parameter(1)
  %copy-start = (f32[100,256]{1,0:T(8,128)S(1)}, f32[100,256]{1,0:T(8,128)}, u32[]{:S(2)}) \
copy-start(%w)
  %copy-done = f32[100,256]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  %in = (f32[8,100]{1,0:T(8,128)}, f32[100,256]{1,0:T(8,128)S(1)}) tuple(%x, %copy-done)
  %while = (f32[8,100]{1,0:T(8,128)}, f32[100,256]{1,0:T(8,128)S(1)}) while(%in), \
condition=%c, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %out = f32[8,100]{1,0:T(8,128)} get-tuple-element(%while), index=0
}
"""


def test_flops_and_bytes_count_loops_padding_and_only_hbm() -> None:
    copy, product = operations(parse(TEXT))
    assert (copy.kind, copy.bytes) == ("copy", 104 * 256 * 4)  # read; written on the chip
    assert (product.times, product.flops) == (3, 3 * 2 * 8 * 100 * 256)
    assert product.bytes == 3 * 4 * (8 * 128 + 8 * 256)
    assert (product.line, product.label) == ("/w/train.py:7", "fc/mm 8×100×256")
    (only,) = product.products
    assert only.passes == 6 and only.filled(256) == 100 / 256
    assert only.filled(128) == 100 / 128


def test_bounds_are_those_of_the_data_sheet() -> None:
    found, v6e = operations(parse(TEXT)), chips()["v6e"]
    bounds = bounds_of(found, v6e)
    assert bounds.matrix == pytest.approx(6 * 3 * 2 * 8 * 100 * 256 / 918e12)
    assert bounds.hbm == pytest.approx(sum(o.bytes for o in found) / 1638e9)
    assert bounds.binding == "HBM" and bounds.seconds == bounds.hbm
    assert bounds_of(found, v6e, passes=1).matrix == pytest.approx(bounds.matrix / 6)


def test_a_step_that_is_refused_for_its_memory_says_what_to_change() -> None:
    error = "JaxRuntimeError: Ran out of memory in memory space hbm. Used 40.00G of 31.25G hbm."
    compiled = Compiled("step", "step.mlir", True, 0, [], [], 1.0, error)
    step = step_of(compiled, [], chips()["v6e"])
    assert step.hbm == 40 * 2**30 and not step.fits
    advice = memory_advice(step, chips()["v6e"])
    assert any("checkpoint" in line for line in advice) and "v5p" in advice[-1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--chip", "v9z"], "'v9z' is not one of 'v6e', 'v5e', 'v5p', 'v7x'"),
        (["--target", "torch_xla"], "forecast needs --target torchax"),
        (["--chips", "3"], "the compiler knows slices of 1, 4, 8 chips v6e"),
        (["--price", "2"], "--price needs --steps"),
    ],
)
def test_what_it_can_not_do_is_one_line(given: list[str], message: str) -> None:
    done = CliRunner().invoke(forecast_command, ["train.py", *given])
    assert done.exit_code != 0 and message in f"{done.output}{done.exception}"


TRAIN = """\
import torch
from torch import nn

model = nn.Linear(300, 100).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(64, 300).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@needs_libtpu
def test_a_script_is_forecast_by_the_real_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    options = ["train.py", "--python", sys.executable, "--format", "json", "--steps", "1000"]
    done = CliRunner().invoke(forecast_command, options)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["label"] == "Compiled for, not run on, a TPU v6e (v6e-1)"
    step = next(step for step in found["steps"] if step["kind"] == "train")
    assert step["flops"] == 2 * 2 * 64 * 300 * 100  # forward, and the gradient of the weights
    assert step["hbm"] == sum(step["memory"].values()) and step["fits"]
    assert 0 < step["bound"] <= step["estimate"]
    assert step["bounds"]["matrix"] == pytest.approx(6 * step["flops"] / 918e12)
    assert "train.py:7" in {cost["line"] for cost in step["lines"]}
    assert found["price"]["hours"] == pytest.approx(1000 * step["bound"] / 3600 / 0.4)
