"""The forecast of a step: from the compiler's text, and from a script."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from helpers import REPOSITORY
from target import needs_libtpu

from migrator.errors import UsageError
from migrator.forecast.command import forecast_command
from migrator.forecast.forecast import Forecast, placed, priced, seen_in_run
from migrator.forecast.forecast_advice import memory_advice
from migrator.forecast.hlo import parse
from migrator.forecast.memory_parts import parts_of
from migrator.forecast.operation_costs import operations
from migrator.forecast.page import render
from migrator.forecast.roofline import bounds_of, padding_of, seconds_of, step_of, timed
from migrator.forecast.show_forecast import show
from migrator.report.terminal import console
from migrator.verify import choose_interpreter
from migrator.verify.chips import chip_of, chips
from migrator.verify.runtime_report import HostRead, RuntimeReport
from migrator.verify.tpu import CompiledForTpu

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


# As libtpu 0.0.52 writes them: a mesh in the place of groups, and a collective with a start.
EXCHANGE = """\
HloModule jit_f, is_scheduled=true

ENTRY %main (x: bf16[64,128], w: bf16[128,128]) -> bf16[64,128] {
  %x = bf16[64,128]{1,0:T(8,128)} parameter(0)
  %w = bf16[128,128]{1,0:T(8,128)} parameter(1)
  %permute-start = (bf16[64,128]{1,0:T(8,128)S(1)}, bf16[64,128]{1,0:T(8,128)S(1)}) \
collective-permute-start(%x), channel_id=3, source_target_pairs={{0,1},{1,0}}
  %d = bf16[64,128]{1,0:T(8,128)} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %permute-done = bf16[64,128]{1,0:T(8,128)S(1)} collective-permute-done(%permute-start)
  ROOT %r = bf16[64,128]{1,0:T(8,128)} all-reduce(%d), channel_id=1, replica_groups=GROUPS, \
to_apply=%add
}
"""
SIZE = 64 * 128 * 2


@pytest.mark.parametrize(
    ("groups", "count"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", 4),
        ("[2,4]<=[8]", 4),
        ("mesh['axis_0'=8] {'axis_0'}", 8),
        ("mesh['data'=2,'model'=4] {'model'}", 4),
        ("mesh['x'=8] {'x':(2)4}", 4),
    ],
)
def test_an_all_reduce_sends_its_ring_however_its_groups_are_written(
    groups: str, count: int
) -> None:
    found = operations(parse(EXCHANGE.replace("GROUPS", groups)))
    assert found[-1].exchanged == 2 * (count - 1) / count * SIZE


@pytest.mark.parametrize(
    ("slice_name", "sends"),
    [
        ("v6e-4", 200e9),  # 2x2: two of four links of 100 GB/s
        ("v6e-8", 200e9),  # 2x4: in a corner, two of four
        ("v5e-8", 100e9),
        ("v5p-4", 200e9),  # 2x2x1: two of six
        ("v5p-8", 300e9),  # 2x2x2: three of six
    ],
)
def test_a_chip_of_a_slice_sends_over_the_links_that_it_has_there(
    slice_name: str, sends: float
) -> None:
    assert chip_of(slice_name).sends == pytest.approx(sends)
    found = operations(parse(EXCHANGE.replace("GROUPS", "mesh['x'=4] {'x'}")))
    exchanged = sum(each.exchanged for each in found)
    assert bounds_of(found, chip_of(slice_name)).interconnect == pytest.approx(exchanged / sends)


def test_only_the_part_of_a_collective_that_nothing_hides_is_in_the_estimate() -> None:
    chip = chip_of("v6e-8")
    all_of_it = operations(parse(EXCHANGE.replace("GROUPS", "[1,8]<=[8]")))
    found = {each.name: seconds for each, seconds in timed(all_of_it, chip)}
    reduced = all_of_it[-1]
    assert found["permute-start"] == pytest.approx(SIZE / 100e9 - found["d"])  # one link
    assert found["r"] == pytest.approx(reduced.exchanged / 200e9)


UPDATE = """\
HloModule jit_AdamW, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), \
{1}: (2, {}, may-alias) }, entry_computation_layout={}

ENTRY %main (w: f32[100,256], x: f32[8,100], m: f32[100,256]) -> (f32[100,256], f32[100,256], \
f32[100,256], f32[8,256]) {
  %w = f32[100,256]{1,0:T(8,128)} parameter(0), metadata={op_name="args[0][0]"}
  %x = f32[8,100]{1,0:T(8,128)} parameter(1), metadata={op_name="args[1][0]"}
  %m = f32[100,256]{1,0:T(8,128)} parameter(2), metadata={op_name="args[0][1]"}
  %e = bf16[1000,128]{1,0:T(8,128)(2,1)} parameter(3), metadata={op_name="args[1][1]"}
  ROOT %out = (f32[100,256]{1,0:T(8,128)}, f32[100,256]{1,0:T(8,128)}, \
f32[100,256]{1,0:T(8,128)}, f32[8,256]{1,0:T(8,128)}) custom-call(%w, %x, %m, %e)
}
"""


def test_memory_is_divided_by_what_arrays_are_for() -> None:
    weight, batch, frozen, logits = 104 * 256 * 4, 8 * 128 * 4, 1000 * 128 * 2, 8 * 256 * 4
    memory = {"arguments": 2 * weight + batch + frozen, "outputs": weight + logits,
              "temporaries": 7, "code": 5}  # fmt: skip
    owners = {"given": {"args[1][1]": "weights"},
              "results": ["weights", "optimizer states", "gradients", "others"]}  # fmt: skip
    assert parts_of(parse(UPDATE), owners, memory) == {
        "weights": weight + frozen, "gradients": weight, "optimizer states": weight,
        "others": batch + logits, "temporaries": 7, "code": 5,
    }  # fmt: skip


# A slice that is fetched ahead: its start names the whole array first, then the slice.
SLICE = """\
HloModule jit_f, is_scheduled=true

ENTRY %main (w: f32[64,1024,128]) -> f32[1024,128] {
  %w = f32[64,1024,128]{2,1,0:T(8,128)} parameter(0)
  %slice-start.1 = ((f32[64,1024,128]{2,1,0:T(8,128)}), f32[1,1024,128]{2,1,0:T(8,128)S(1)}, \
s32[]{:S(2)}) slice-start(%w), slice={[3:4], [0:1024], [0:128]}
  %slice-done.1 = f32[1,1024,128]{2,1,0:T(8,128)S(1)} slice-done(%slice-start.1)
  ROOT %out = f32[1024,128]{1,0:T(8,128)} bitcast(%slice-done.1)
}
"""


def test_a_slice_that_is_fetched_ahead_is_not_counted_with_its_whole_array() -> None:
    (start,) = operations(parse(SLICE))
    assert start.bytes == 1024 * 128 * 4  # read; written on the chip


KERNEL = """\
HloModule jit_f, is_scheduled=true

ENTRY %main (q: bf16[2,8,512,128], k: bf16[2,8,1024,128], v: bf16[2,8,1024,128]) -> bf16[] {
  %q = bf16[2,8,512,128]{3,2,1,0:T(8,128)} parameter(0)
  %k = bf16[2,8,1024,128]{3,2,1,0:T(8,128)} parameter(1)
  %v = bf16[2,8,1024,128]{3,2,1,0:T(8,128)} parameter(2)
  ROOT %NAME = bf16[2,8,512,128]{3,2,1,0:T(8,128)} custom-call(%q, %k, %v), \
custom_call_target="tpu_custom_call"
}
"""


def test_an_attention_kernel_has_the_products_of_its_shapes() -> None:
    (kernel,) = operations(parse(KERNEL.replace("NAME", "splash_mha_fwd_no_residuals.1")))
    assert kernel.kind == "kernel" and kernel.flops == 2 * 2 * 2 * 8 * 512 * 1024 * 128
    v6e, v5p = chip_of("v6e-1"), chip_of("v5p-1")
    # Heads of 128 fill half of the 256 rows of a matrix unit.
    assert seconds_of(kernel, v6e) == pytest.approx(2 * bounds_of([kernel], v6e).matrix)
    assert padding_of(kernel, v5p) == 0
    (other,) = operations(parse(KERNEL.replace("NAME", "my_kernel")))
    assert other.kind == "kernel" and other.flops == 0


def test_epochs_have_the_steps_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = CompiledForTpu("step", "f", True, 0, [], [], 1.0, flops=918e12, in_place=1)
    plain = Forecast("train.py", chip_of("v6e-1"), steps=[step_of(compiled, [], chip_of("v6e-1"))])
    found = priced(plain, 7200, 2.0, 0.5, 5)
    assert found.price is not None
    assert found.price.least_hours == pytest.approx(10) and found.price.money == pytest.approx(40)
    show(found, console())
    said = "5 epochs of 7,200 steps of step: 10 hours at the bound, 20 at 50% of it"
    assert said in capsys.readouterr().out and said in render(found, Path("page.html"))
    alone = priced(plain, 7200, None, 0.5).price
    assert alone is not None and alone.hours == pytest.approx(4)


def test_a_step_that_is_refused_for_its_memory_says_what_to_change() -> None:
    error = "JaxRuntimeError: Ran out of memory in memory space hbm. Used 40.00G of 31.25G hbm."
    compiled = CompiledForTpu("step", "step.mlir", True, 0, [], [], 1.0, error)
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
        (["--golden", "none"], "gpu_steps.json: No such file or directory: `tpu-migrate record`"),
        (["--epochs", "90"], "--epochs needs --steps N: how many training steps an epoch has"),
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
    print(loss.item())
"""


@needs_libtpu
def test_a_script_is_forecast_by_the_real_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path.with_name("cache")))
    Path("train.py").write_text(TRAIN)
    options = ["train.py", "--python", sys.executable, "--format", "json", "--steps", "1000"]
    done = CliRunner().invoke(forecast_command, [*options, "--report", "page.html"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["label"] == "Compiled for, not run on, a TPU v6e (v6e-1)"
    step = next(step for step in found["steps"] if step["kind"] == "train")
    assert step["flops"] == 2 * 2 * 64 * 300 * 100  # forward, and the gradient of the weights
    assert step["hbm"] == sum(step["memory"].values()) == sum(step["parts"].values())
    assert 4 * 300 * 100 < step["parts"]["weights"] <= 4 * 304 * 129 and step["fits"]  # tiles
    assert step["parts"]["gradients"] == step["parts"]["weights"]
    assert step["parts"]["optimizer states"] == 0  # of SGD
    assert 0 < step["bound"] <= step["estimate"]
    assert step["bounds"]["matrix"] == pytest.approx(6 * step["flops"] / 918e12)
    waits = "the host waits for values of the device: train.py:11: print(loss.item())"
    assert any(note.startswith(waits) for note in found["notes"]), found["notes"]
    assert "train.py:7" in {cost["line"] for cost in step["lines"]}
    assert found["price"]["hours"] == pytest.approx(1000 * step["bound"] / 3600 / 0.4)
    page = Path("page.html").read_text()
    assert '<polyline class="roof"' in page and '<a href="./train.py">train.py:7</a>' in page

    # Zeros in the place of what steps compute: the same steps, and a loss of 0.
    found["steps"][0]["bound"] /= 2
    Path("before.json").write_text(json.dumps(found))
    again = CliRunner().invoke(
        forecast_command, [*options, "--no-compute", "--baseline", "before.json"]
    )
    same = json.loads(again.stdout)
    figures = ("name", "flops", "accessed", "hbm", "bound", "estimate")
    assert [[s[n] for n in figures] for s in same["steps"]][1:] == [
        [s[n] for n in figures] for s in found["steps"]
    ][1:]
    assert again.exit_code == 1 and "100% more than the" in again.stderr.replace("\n", " ")


EMBEDDED = """\
import torch
from torch import nn

model = nn.Sequential(nn.Embedding(20000, 128), nn.Linear(128, 128)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randint(0, 20000, (8, 1024)).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@needs_libtpu
def test_the_text_of_a_step_with_an_embedding_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX 0.10.2 alone does not read it: gathers on the SparseCores have too many operands."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(EMBEDDED)
    options = ["--python", sys.executable, "--format", "json", "--no-compute"]
    done = CliRunner().invoke(forecast_command, ["train.py", *options])
    assert done.exit_code == 0, done.output
    steps = json.loads(done.stdout)["steps"]
    assert all(step["estimate"] is not None and step["lines"] for step in steps), steps
    assert max(step["flops"] for step in steps) >= 2 * 2 * 8 * 1024 * 128 * 128


def test_a_line_that_waits_is_found_among_files_of_the_same_name(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    for folder in ("a", "b"):
        for root, before in ((source, ""), (copy, "import tpu_runtime\n")):
            (root / folder).mkdir(parents=True)
            (root / folder / "log.py").write_text(f"{before}print(loss.item())\n")
    read = HostRead("log.py:2: print(loss.item())", str(copy / "b" / "log.py"), 1, 4)
    outside = HostRead("data.py:7: x.item()", "/env/data.py", 2, 8)
    ran = RuntimeReport(reads=[read, outside])
    assert [*seen_in_run(ran, placed(source, copy))] == [
        "the host waits for values of the device: b/log.py:1: print(loss.item()) (once, 4 bytes)",
        "the host waits for values of the device: data.py:7: x.item() (2 times, 8 bytes)",
    ]


def test_without_libtpu_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    bare = SimpleNamespace(python=Path("/env/bin/python"), versions={"torchax": "0.0.13"})
    monkeypatch.setattr(choose_interpreter, "choose_interpreter", lambda *_: bare)
    done = CliRunner().invoke(forecast_command, ["train.py"])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == (
        "libtpu, the TPU's compiler, is not installed in /env/bin/python: "
        "tpu-migrate doctor --target torchax --install"
    )


def test_the_page_about_forecasts_names_every_field_of_the_json() -> None:
    page = (REPOSITORY / "docs" / "forecast.md").read_text("utf-8")
    _, _, rest = page.partition("## JSON")
    first_cells = re.findall(r"^\| (`.*?) \|", rest.partition("\n## ")[0], re.MULTILINE)
    fields = set(re.findall(r"`(\w+)`", " ".join(first_cells)))
    compiled = CompiledForTpu("step", "f", True, 0, [], [], 1.0)
    step = step_of(compiled, [], chip_of("v6e-1"))
    found = Forecast("train.py", chip_of("v6e-1"), steps=[step]).to_dict()
    assert fields == {*found, *found["steps"][0]}
